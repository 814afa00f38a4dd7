"""What people look at: reports as text and as pages."""
