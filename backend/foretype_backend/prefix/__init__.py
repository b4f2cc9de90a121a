"""What the gateway knows of the engines' prefix caches: salts, placed chains, retirement."""
