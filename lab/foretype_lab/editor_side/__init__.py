"""What the language server costs an editor: import, memory, idling, a file that was just opened, and a key in it."""
