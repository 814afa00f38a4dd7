"""What people look at: counts and sizes, pages, panels and plain lines of samples and reports; `show` and `stats`."""
