"""Two runs over the same items: what differs, and by how much it could be chance."""
