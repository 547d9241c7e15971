"""A parent that gets a pool busy and waits to be killed; perhaps a fork of it lives on."""

import asyncio
import os
import sys

from steelyard.workers import WorkerPool


async def main(fifo, *, forks):
    pool = WorkerPool("worker_functions:act", size=2, cpu_s=None, wall_s=None)
    await pool.start()
    if forks and os.fork() == 0:  # like a data loader of the trainer's: it holds all that the parent held
        sys.stdin.read()
        os._exit(0)
    await asyncio.gather(pool.call([("deaf child", fifo), "bignum"]), pool.call([("hold", fifo)]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], forks=len(sys.argv) > 2))
