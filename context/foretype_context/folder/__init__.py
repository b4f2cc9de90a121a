"""What a folder holds, read as data: git, globs, small files, what is left out."""
