"""At home in other people's trainers: each door in a module of its own, imported by name.

| room | is |
|---|---|
| `scorer` | a runtime in a thread of its own, for loops that are not asynchronous |
| `trl` | rewards for TRL's trainers, and a mixin under which an unscored row trains nothing |
| `grpo` | a GRPO step of our own, to be read and to be measured |
| `allocation` | a planned step tried out: on the meta device, over tensors without memory, or on a GPU |
| `estimators` | which advantages and which loss GRPO, Dr.GRPO, RLOO, DAPO and GDPO mean |

Nothing here is imported by `import steelyard`: torch and trl are extras.
"""
