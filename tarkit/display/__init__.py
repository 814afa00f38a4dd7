"""Views for people: counts and sizes, pages, panels and plain lines of samples and reports; `show` and `stats`."""
