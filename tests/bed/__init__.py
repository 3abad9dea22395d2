"""The test bed: users' machines on a network of their own, as real as one machine can hold.

```
 workstation ── gate ── pve1 (container 200 behind `pct`)
      └── ct129 (evaluates, as another user)
```

Each is a network namespace with its own OpenSSH server, keys, users and host name; wires are veth pairs, nobody
forwards, so that `pve1` is reached through `gate` alone (ProxyJump) and never meets `ct129`. `network.py` has the
namespaces and wires, `machine.py` what stands in one, `bed.py` the whole with its workstation, `screen.py` the app in a
real terminal, `conftest.py` the fixtures. Needs root; what a killed run left is removed by the next one.
"""
