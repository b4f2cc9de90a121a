"""What operators see in a browser, at `/admin`: the same as `foretype status`, `usage`, `keys`, `report` and `experiment` tell."""
