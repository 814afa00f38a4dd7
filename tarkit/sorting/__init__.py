"""Any number of samples in any order, in bounded memory."""
