"""What runs inside a slot, as a package of its own: nothing here imports anything from outside.

`server` starts guests, `confine` shuts them in (`filter`, `landlock`, `syscalls`), `facts` proves that it
holds. `jobs` does what a guest was started for: `table`, `program`, `serve` with a `judge` (`checks`, `link`,
`proxies`, `standin`, `wire`), `cooperative`. `codec` and `reading` write and read values, `frames` and
`control` are the two wires to the host.
"""
