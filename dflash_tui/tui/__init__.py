"""The app: Textual screens and widgets that render `console.state.State` and send acts to the console."""
