"""Will it fit: the memory of a GRPO run, by phase, before a GPU is rented.

`shapes` says what a model is made of, `plan` what is to run, `card` where. `estimate` puts the residents
of every phase together, each with its formula and source; `fit` says whether that fits, which lever buys
most, and how far it can be taken; `roofline` how fast its rollouts can come. Everything here is
arithmetic: no torch, no GPU, no files. What it cannot know (fragmentation, kernels' scratch) is a band
around the number, and says so.
"""
