"""The running whole without a face: hosts, jobs, state, and the acts that the app and the command line share."""
