"""What next edits are worth: on scored fixtures, on recorded sessions, and on commits that are typed a part of."""
