"""The adaptive local model: what this file and its neighbours would say next, in well under a millisecond.

A nested cache model over lexemes (after Hellendoorn and Devanbu, "Are deep neural networks the best choice for modeling
source code?", 2017): contexts of every length are counted in this file and in the other files that were seen, and longer
contexts outvote shorter ones. Nothing is trained and nothing leaves the process; the counts are the text itself, searched.
"""
