"""The HTTP door: a recipe in a process of its own, reloaded without losing a request.

`steelyard serve RECIPE` is for a trainer on another machine, and for a reward that is edited while a
trainer runs for days. Two kinds of processes:

- The **front** (`front`, `supervisor`) owns the listening socket and speaks HTTP. It never imports code
  of the user's, so nothing that a reward does can stop it, and it answers /health whatever happens.
- A **scoring process** (`scorer`) loads the recipe and keeps one `Runtime` entered. A reload starts a
  second one, with an interpreter of its own: no old module, no old helper beside it, no state. It takes
  over when it says that it is ready; a recipe that cannot be loaded changes nothing. The old one
  finishes what it began, and ends.

A request travels to its scoring process over a connection that it has to itself (`wire`): whoever
leaves hangs up, and that cancels the work on the other side, worker processes included. So every
answer was made by one scoring process, whose identity stands in it.

A fresh process alone is not clean: a worker that is started later, after one was cut, would import the
file as it is *then*, and judge half a group by an edit that nobody asked to load. `sources` has each
file read once, and hands what was read to the workers. `rows` turns what is posted into groups, and
scored groups into rows.

Refused: servers that inherit the socket in turns, as gunicorn's workers do. A kept-alive connection
then outlives its server, or is closed under a request that is on its way; where none can be loaded
nobody is left to say so; and /health and /reload need a second channel anyhow. Refused, too:
`importlib.reload`, which leaves helpers, classes and state as they were.

Not covered: modules that a function imports only when it is called are read then. An awaited function
that never lets go of the interpreter stops its scoring process, and outlives a front that was killed.
There is no authentication: whoever reaches the socket may ask for scores and reloads.
"""
