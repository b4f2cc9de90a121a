"""What the HTTP doors answer, as types: the schemas of the OpenAPI document are made from them."""
