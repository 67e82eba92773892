"""The log as who reads much of it sees it: mapped segments, and walks over them, also in another process."""
