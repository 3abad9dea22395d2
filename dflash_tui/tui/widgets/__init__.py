"""The header, the key bar and one panel a file; each panel's drawing is a pure function of State and size."""
