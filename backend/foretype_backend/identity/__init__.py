"""Who asks: tenants, teams, users, keys, bearer tokens. Nothing on the path of a completion waits for a database."""
