# one WORKER message: is a finished row held by a hanging sibling in its message?
import asyncio, time
from steelyard import Part, Recipe, Runtime, Group, Rollout
from steelyard.rewards import named
gs=[Group(k,k,[Rollout(k*4+i,"?","hang" if k==0 and i==0 else "x",{},(k,i),k*4+i,"w") for i in range(4)]) for k in range(300)]
async def main():
    t=time.time(); first=None; n=0
    async for s in Runtime(Recipe((Part(named("slow.py:f")),)),workers=2,timeout_s=3).score(gs):
        n+=1
        if s.group.ordinal in (1,2,15,16,299): print(s.group.ordinal, round(time.time()-t,2))
    print(n, round(time.time()-t,2))
asyncio.run(main())
