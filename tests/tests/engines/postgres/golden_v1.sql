-- Rows of format 1. Far instants, so that they mean the same for long: 2200 has not come.
insert into tower_claim.claim (key, format, state, token, nonce, not_after, since, until, lease, cooling, min_hold,
    unfinished_keep, on_lapse, label, fingerprint, last_beat, progress, attempt, marked, revoke_asked, watched,
    not_before, value, spent_room, spent_latest, folded, purge_at) values
    (decode(repeat('01', 32), 'hex'), 1, 'free', 1900000000000001, decode(repeat('01', 16), 'hex'),
     '2200-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '10 s', '0', '0', '24:00:00',
     'take over', '', null, null, 0, 1, false, false, false, null, null, 15, '2200-01-01 00:00:00+00', null,
     '2026-01-01 00:00:00+00'),
    (decode(repeat('02', 32), 'hex'), 1, 'held', 1900000000000002, decode(repeat('02', 16), 'hex'),
     '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2200-01-01 00:00:00+00', '10 s', '1 s', '0', '24:00:00',
     'hold', 'lease 1', decode(repeat('09', 32), 'hex'), '2026-01-01 00:00:01+00', 7, 2, true, true, false, null,
     null, 16, null, null, '2026-01-01 00:00:10+00'),
    (decode(repeat('03', 32), 'hex'), 1, 'done', 1900000000000003, decode(repeat('03', 16), 'hex'),
     '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2200-01-01 00:00:00+00', '10 s', '0', '0', '24:00:00',
     'take over', 'idem 1', null, '2026-01-01 00:00:01+00', 0, 1, false, false, false, null,
     convert_to('golden', 'UTF8'), 16, null, null, '2026-01-01 00:00:10+00'),
    (decode(repeat('04', 32), 'hex'), 1, 'unknown', 1900000000000004, decode(repeat('04', 16), 'hex'),
     '2026-01-01 00:00:00+00', '2026-01-01 00:00:00+00', '2200-01-01 00:00:00+00', '10 s', '0', '0', '24:00:00',
     'hold', 'idem 2', null, '2026-01-01 00:00:01+00', 0, 1, true, false, false, '2026-01-01 00:00:00+00',
     null, 16, null, null, '2026-01-01 00:00:10+00');
insert into tower_claim.spent (key, nonce, not_after) values
    (decode(repeat('01', 32), 'hex'), decode(repeat('05', 16), 'hex'), '2200-01-01 00:00:00+00');
