"""One recording, one model file, one run: llama.cpp's server as llama.vim drives it, beside our gateway and our client."""
