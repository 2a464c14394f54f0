-- Marks of a guard of format 1: a mark, and a floor that was raised.
insert into tower_claim.fence (id, resource, high, nonce, since) values
    (decode('fe14010b4fe83303852f0467c919ef9a7ca089b91e96e3aad7d426dd87079297', 'hex'), 'ledger', 1900000000000005,
     decode(repeat('06', 16), 'hex'), '2026-01-01 00:00:00+00'),
    (decode('2a1db49adbe0e8281c0615f68e6829ddf9de3c315b8329481181ac65bea47e3b', 'hex'), 'shut', 1900000000000005,
     null, '2026-01-01 00:00:00+00');
