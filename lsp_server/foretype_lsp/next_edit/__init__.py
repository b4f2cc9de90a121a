"""The next edit beyond the cursor: `textDocument/copilotInlineEdit` and what the editor tells of its answers."""
