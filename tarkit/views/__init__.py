"""What people look at: functions from data to text. Nothing is opened here, nothing is written."""
