"""querygate: what stands between a site's people and its lake (Q2, Q3, Q5, D5).

It listens behind the gateway's HAProxy, which knows who asks. Every question is read into numbers, parsed
expressions and listed words; what goes to a store is written from those, never passed on (docs/adr/0008).
"""
