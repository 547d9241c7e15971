"""A plan's memory, checked against the model itself: `python -m steelyard.integrations.allocation`.

An estimate multiplies a shape by bytes. This builds the real model, and asks three things of it:

| room | asks |
|---|---|
| `meta` | are parameters and logits as planned? On the meta device: nothing is allocated |
| `tracked` | what do real operators keep? A step on fake tensors, every storage written down |
| `gpu` | what does a GPU say? The same step, for real, where there is one |

`training` is the step that both run, `selective` a head of its own, `attention` what attention CUDA would
choose, `points` the file where what a GPU said is kept, `asked` the request, `answer` the answer. Never run
on a GPU where this was developed: `gpu` is tested with a stand-in for CUDA's counters around a real step on
a CPU.

It runs as a child of `steelyard fit --verify`, for whoever only plans need not import torch, and a process
that runs out of memory should be no other's.

Protocol 1
----------
One JSON document on stdin, one on stdout; what libraries print goes to stderr. Bytes are bytes.

Request: `protocol` (1); `name`, `config` (the parsed `config.json`); `plan` (fields of
`steelyard.memory.plan.Plan` but `model`; what is absent has its default); `card` (fields of
`steelyard.memory.values.Card`); `points` (a CSV file that a GPU's figures are appended to, or null); `device`
(`auto`, or `none`: no GPU is touched).

Answer: `protocol`, `versions` of torch and transformers, and

- `model`: `agrees`, `counts` (`what`, `planned`, `built`, `unit`), `logits` (their shape), `differences`
  (`module`, `planned`, `built`: parameters, where totals differ);
- `changes`: how the step's plan differs from what was asked (one GPU, no engine, ...). The step is compared
  with the estimate of the changed plan;
- `tracked`: `outcome` (`measured`, `not run`, `failed`), `reason`, `label`, `allocated` (`planned`,
  `measured`, `error` = planned / measured - 1), `phase` of the peak, `residents` there;
- `gpu`: `outcome` (also `out of memory`), `reason`, `device`, `allocated` and `reserved` as above, each
  `max_memory_` of its name and never mixed, `context` (what the driver counts beyond reserved, of all
  processes on the card), `phase` where memory ran out (then `measured` is what there was when it did, and
  `error` is null);
- `stored`: `file` and `rows`, or null.

Exit status: 0 with an answer; 2 with `{"protocol": 1, "refused": {"reason", "where", "remedy"}}`, as where
torch is absent.
"""
