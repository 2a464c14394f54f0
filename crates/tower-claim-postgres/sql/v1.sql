-- The claim protocol in PostgreSQL, format 1. Run as it stands, once or again; several may run it at a time.
-- For another schema or a prefix, replace every `tower_claim.` by `your_schema.your_prefix`, the name in
-- `create schema`, and `claim_purge_at` by `your_prefixclaim_purge_at`; or let `Names::migration()` do it.
--
-- Every function is one move of the protocol and one statement of its caller: it keeps no session state, so
-- a pooler may stand between. Names carry the format: two versions of a program may run side by side.
-- Instants travel as microseconds since 1970, spans as microseconds.
--
-- Moves never scan a table (`set enable_seqscan`): a session keeps the plan that it made while the table was small,
-- and would read all of it, once it has grown, until the next ANALYZE; and at SERIALIZABLE a scan conflicts with all.
begin;
set local client_min_messages = warning;
set local lock_timeout = '30s';
select pg_advisory_xact_lock(hashtextextended('tower-claim migration', 0));

create schema if not exists tower_claim;

create table if not exists tower_claim.meta (
    only_row  boolean primary key default true check (only_row),
    format    integer not null,
    functions integer not null
);
do $$ begin
    if exists (select from tower_claim.meta where format > 1) then
        raise exception 'the tables are of a newer format' using errcode = 'TC003';
    end if;
end $$;

-- One row for each key. What is worth what now, time decides: see standing_v1.
create table if not exists tower_claim.claim (
    key             bytea primary key check (octet_length(key) = 32),
    format          smallint not null default 1,
    state           text not null check (state in ('free', 'held', 'done', 'unknown')),
    token           bigint not null check (token between 0 and 9007199254740991),
    nonce           bytea not null check (octet_length(nonce) = 16),
    -- Until when a copy of the last nonce's claim may arrive.
    not_after       timestamptz not null,
    since           timestamptz not null,
    -- Held: the end of the lease. Done, unknown: of the keep. Free: the "not before".
    until           timestamptz not null,
    -- The owner's own terms: they judge the record, never the asker's.
    lease           interval not null,
    cooling         interval not null,
    min_hold        interval not null,
    unfinished_keep interval not null,
    on_lapse        text not null check (on_lapse in ('take over', 'hold')),
    label           text not null,
    fingerprint     bytea check (octet_length(fingerprint) = 32),
    last_beat       timestamptz,
    progress        bigint not null,
    attempt         integer not null,
    marked          boolean not null,
    revoke_asked    boolean not null,
    -- Whether somebody waits for the end of this hold: then its end is notified.
    watched         boolean not null,
    -- Of an unknown made by a release or a break. Of a done record, where the key was to stay taken: were its
    -- result gone, nobody would be granted the key before.
    not_before      timestamptz,
    -- Of a done record; null is a tombstone.
    value           bytea,
    -- Of the spent nonces: how many fit until the next look at them, the latest not_after of all, and the
    -- instant that those beyond the bound were folded into.
    spent_room      integer not null,
    spent_latest    timestamptz,
    folded          timestamptz,
    -- When a purge looks at the row. Only a purge moves it: so renewals and finishes stay heap-only.
    purge_at        timestamptz not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
alter table tower_claim.claim alter column value set storage external;
create index if not exists claim_purge_at on tower_claim.claim (purge_at);

-- Other nonces that are never to be granted, each until a copy of its claim can no longer be applied.
create table if not exists tower_claim.spent (
    key       bytea not null,
    nonce     bytea not null,
    not_after timestamptz not null,
    primary key (key, nonce)
);

-- The guard: per resource the highest token admitted, and its nonce (null where a floor was raised).
create table if not exists tower_claim.fence (
    id       bytea primary key,
    resource text not null,
    high     bigint not null check (high between 0 and 9007199254740991),
    nonce    bytea check (octet_length(nonce) = 16),
    since    timestamptz not null
) with (fillfactor = 70);

do $$ begin
    create type tower_claim.claimed_v1 as (
        at bigint, answer text, key bytea, token bigint, rest bigint, since bigint, attempt bigint,
        same_fingerprint boolean, label text, value bytea,
        took_token bigint, took_since bigint, took_beat bigint, took_progress bigint
    );
exception when duplicate_object then null; end $$;
do $$ begin
    create type tower_claim.viewed_v1 as (
        at bigint, key bytea, state text, label text, token bigint, nonce bytea, fingerprint bytea,
        since bigint, rest bigint, last_beat bigint, progress bigint, marked boolean, lapsed boolean,
        attempt bigint
    );
exception when duplicate_object then null; end $$;

-- Instants and spans as integers, and back.
create or replace function tower_claim.micros_v1(_at timestamptz) returns bigint language sql stable as
$$ select (extract(epoch from _at) * 1000000)::bigint $$;
create or replace function tower_claim.instant_v1(_micros bigint) returns timestamptz language sql stable as
$$ select timestamptz 'epoch' + _micros * interval '1 microsecond' $$;
create or replace function tower_claim.left_v1(_until timestamptz, _now timestamptz) returns bigint language sql stable as
$$ select greatest((extract(epoch from _until) * 1000000)::bigint - (extract(epoch from _now) * 1000000)::bigint, 0) $$;

-- What a record is worth now.
create or replace function tower_claim.standing_v1(r tower_claim.claim, _now timestamptz) returns text language sql stable as $$
    select case r.state
        when 'held' then case
            when _now < r.until then 'held'
            when _now >= r.until + r.unfinished_keep then 'free'
            when r.marked or r.on_lapse = 'hold' then 'unknown'
            else 'lapsed' end
        when 'done' then case when _now < r.until then 'done' else 'free' end
        when 'unknown' then case when _now < r.until then 'unknown' else 'free' end
        else 'free' end
$$;

-- Before this nobody is granted the key, were it free.
create or replace function tower_claim.not_before_v1(r tower_claim.claim) returns timestamptz language sql stable as $$
    select case r.state
        when 'held' then greatest(r.until + r.cooling, r.since + r.min_hold)
        when 'unknown' then r.not_before
        else r.until end
$$;

-- Whether nothing would be lost with the record.
create or replace function tower_claim.forgettable_v1(r tower_claim.claim, _now timestamptz) returns boolean language sql stable as $$
    select tower_claim.standing_v1(r, _now) = 'free'
        and _now >= tower_claim.not_before_v1(r)
        and _now > r.not_after
        and coalesce(_now > r.spent_latest, true)
        and r.token < floor(extract(epoch from _now) * 1000)::bigint * 1024
$$;

-- The record of a key never seen.
create or replace function tower_claim.vacant_v1(_key bytea) returns tower_claim.claim language plpgsql immutable as $$
declare r tower_claim.claim;
begin
    r.key := _key; r.format := 1; r.state := 'vacant'; r.token := 0; r.nonce := decode(repeat('00', 16), 'hex');
    r.not_after := '-infinity'; r.since := '-infinity'; r.until := '-infinity';
    r.lease := '0'; r.cooling := '0'; r.min_hold := '0'; r.unfinished_keep := '0'; r.on_lapse := 'take over';
    r.label := ''; r.progress := 0; r.attempt := 0; r.marked := false; r.revoke_asked := false; r.watched := false;
    r.spent_room := 16; r.purge_at := '-infinity';
    return r;
end $$;

-- The record as it counts: a row that is missing, or has nothing left to say, is vacant.
create or replace function tower_claim.seen_v1(r tower_claim.claim, _key bytea, _now timestamptz) returns tower_claim.claim language plpgsql stable as $$
begin
    if r.key is null then return tower_claim.vacant_v1(_key); end if;
    if r.format > 1 then
        raise exception 'record % is of format %', encode(substr(_key, 1, 4), 'hex'), r.format using errcode = 'TC001';
    end if;
    if tower_claim.forgettable_v1(r, _now) then return tower_claim.vacant_v1(_key); end if;
    return r;
end $$;

-- Writes a record back. Never the key, nor when a purge looks at it.
create or replace function tower_claim.save_v1(r tower_claim.claim) returns void language plpgsql as $$
begin
    update tower_claim.claim c set
        format = 1, state = r.state, token = r.token, nonce = r.nonce, not_after = r.not_after, since = r.since, until = r.until,
        lease = r.lease, cooling = r.cooling, min_hold = r.min_hold, unfinished_keep = r.unfinished_keep,
        on_lapse = r.on_lapse, label = r.label, fingerprint = r.fingerprint, last_beat = r.last_beat,
        progress = r.progress, attempt = r.attempt, marked = r.marked, revoke_asked = r.revoke_asked,
        watched = r.watched, not_before = r.not_before, value = r.value,
        spent_room = r.spent_room, spent_latest = r.spent_latest, folded = r.folded
    where c.key = r.key;
end $$;

-- A hold is over. A notification costs a lock on the whole cluster's queue while its transaction commits: so
-- it is sent only where somebody waits.
create or replace function tower_claim.ring_v1(r tower_claim.claim) returns void language plpgsql as $$
begin
    if r.watched then perform pg_notify('tower_claim', encode(r.key, 'hex')); end if;
end $$;

-- Bounds the wait for a row lock; answers the bound before, to be put back.
create or replace function tower_claim.bound_v1(_lock_ms integer) returns text language plpgsql as $$
declare before text := current_setting('lock_timeout');
begin
    perform set_config('lock_timeout', _lock_ms::text, true);
    return before;
end $$;

-- The next token, above the last and the floor.
create or replace function tower_claim.next_token_v1(_last bigint, _floor bigint, _now timestamptz) returns bigint language plpgsql stable as $$
declare token bigint := greatest(_last + 1, _floor + 1, floor(extract(epoch from _now) * 1000)::bigint * 1024);
begin
    if token > 9007199254740991 then
        raise exception 'a fencing token above 2^53 - 1: the floor is inflated' using errcode = 'TC002';
    end if;
    return token;
end $$;

-- Remembers a spent nonce. At most 4,096 for each key one by one: beyond, the earlier half folds into an
-- instant, and no claim whose not_after is at or before it is granted. Those without an end never fold: half
-- of them are forgotten.
create or replace function tower_claim.spend_v1(r tower_claim.claim, _nonce bytea, _not_after timestamptz, _now timestamptz) returns tower_claim.claim language plpgsql as $$
declare
    many integer;
    middle timestamptz;
    never constant timestamptz := tower_claim.instant_v1(9007199254740991);
begin
    if r.spent_latest < _now then
        delete from tower_claim.spent s where s.key = r.key;
        r.spent_latest := null; r.folded := null; r.spent_room := 16;
    end if;
    if _now > _not_after then return r; end if;
    insert into tower_claim.spent as s (key, nonce, not_after) values (r.key, _nonce, _not_after)
        on conflict (key, nonce) do update set not_after = greatest(s.not_after, excluded.not_after);
    r.spent_latest := greatest(r.spent_latest, _not_after);
    r.spent_room := r.spent_room - 1;
    if r.spent_room < 0 then
        delete from tower_claim.spent s where s.key = r.key and s.not_after < _now;
        select count(*) into many from tower_claim.spent s where s.key = r.key;
        if many > 4096 then
            select s.not_after into middle from tower_claim.spent s where s.key = r.key order by s.not_after offset 2048 limit 1;
            if middle >= never then
                select max(s.not_after) into middle from tower_claim.spent s where s.key = r.key and s.not_after < never;
                delete from tower_claim.spent s where s.key = r.key and s.nonce in
                    (select o.nonce from tower_claim.spent o where o.key = r.key and o.not_after >= never offset 2048);
            end if;
            delete from tower_claim.spent s where s.key = r.key and s.not_after <= middle;
            r.folded := greatest(r.folded, middle);
            select count(*) into many from tower_claim.spent s where s.key = r.key;
        end if;
        r.spent_room := greatest(16, least(many, 4096 - many));
    end if;
    return r;
end $$;

-- A nonce that is never to be granted, as long as its claim may be under way.
create or replace function tower_claim.remember_v1(r tower_claim.claim, _nonce bytea, _not_after timestamptz, _now timestamptz) returns tower_claim.claim language plpgsql as $$
begin
    if r.state <> 'vacant' and r.nonce = _nonce then
        r.not_after := greatest(r.not_after, _not_after);
    elsif _now > _not_after then
        null;
    elsif r.state = 'vacant' then
        r.state := 'free'; r.nonce := _nonce; r.not_after := _not_after; r.since := _now; r.until := _now;
    else
        r := tower_claim.spend_v1(r, _nonce, _not_after, _now);
    end if;
    return r;
end $$;

-- Frees the key. Nothing of the work binds any more.
create or replace function tower_claim.freed_v1(r tower_claim.claim, _now timestamptz, _not_before timestamptz) returns tower_claim.claim language plpgsql as $$
begin
    r.state := 'free'; r.since := _now; r.until := _not_before;
    r.label := ''; r.fingerprint := null; r.value := null; r.not_before := null; r.last_beat := null;
    r.marked := false; r.revoke_asked := false; r.watched := false;
    return r;
end $$;

-- Unknown for good: only an operator or the unfinished keep ends it.
create or replace function tower_claim.unknown_v1(r tower_claim.claim, _now timestamptz, _not_before timestamptz) returns tower_claim.claim language plpgsql as $$
begin
    r.state := 'unknown'; r.not_before := _not_before; r.since := _now; r.until := _now + r.unfinished_keep;
    r.watched := false;
    return r;
end $$;

-- Done. The result stays at least as long as the key has to stay taken.
create or replace function tower_claim.done_v1(r tower_claim.claim, _value bytea, _keep bigint, _not_before timestamptz, _now timestamptz) returns tower_claim.claim language plpgsql as $$
begin
    r.state := 'done'; r.value := _value; r.since := _now; r.watched := false;
    r.not_before := case when _not_before > _now then _not_before end;
    r.until := greatest(_now + _keep * interval '1 microsecond', _not_before);
    return r;
end $$;

-- Why a claim is not granted; no answer when it may be.
create or replace function tower_claim.refusal_v1(r tower_claim.claim, _nonce bytea, _fingerprint bytea, _not_after timestamptz, _now timestamptz) returns tower_claim.claimed_v1 language plpgsql as $$
declare
    a tower_claim.claimed_v1;
    standing text := tower_claim.standing_v1(r, _now);
    not_before timestamptz;
begin
    a.at := tower_claim.micros_v1(_now);
    a.key := r.key;
    if _now > _not_after then a.answer := 'too late'; return a; end if;
    if r.state <> 'vacant' and r.nonce = _nonce then
        -- Grants nothing: a full lease counted from a repeated call would make two believers.
        if r.state = 'held' and standing <> 'free' then
            a.answer := 'mine'; a.token := r.token; a.attempt := r.attempt;
            a.rest := tower_claim.left_v1(r.until, _now);
        else
            a.answer := 'ended';
        end if;
        return a;
    end if;
    if r.spent_latest >= _now and exists (select from tower_claim.spent s
            where s.key = r.key and s.nonce = _nonce and s.not_after >= _now) then
        a.answer := 'ended';
        return a;
    end if;
    a.same_fingerprint := r.fingerprint is not distinct from _fingerprint;
    not_before := tower_claim.not_before_v1(r);
    if standing = 'held' or (standing = 'lapsed' and not_before <= _now and not a.same_fingerprint) then
        a.answer := 'busy'; a.token := r.token; a.label := r.label;
        a.since := tower_claim.left_v1(_now, r.since); a.rest := tower_claim.left_v1(r.until, _now);
    elsif standing = 'done' then
        a.answer := 'done'; a.token := r.token; a.value := r.value;
        a.since := tower_claim.left_v1(_now, r.since); a.rest := tower_claim.left_v1(r.until, _now);
    elsif standing = 'unknown' then
        a.answer := 'unknown'; a.token := r.token;
    elsif not_before > _now then
        a.answer := 'cooling'; a.rest := tower_claim.left_v1(not_before, _now);
        a.same_fingerprint := a.same_fingerprint or standing = 'free';
    elsif _not_after <= r.folded then
        a.answer := 'ended';
    end if;
    return a;
end $$;

-- Hands the key over: the record as it is then. `r` is the record before.
create or replace function tower_claim.granted_v1(r tower_claim.claim, _nonce bytea, _fingerprint bytea, _token bigint,
    _lease bigint, _cooling bigint, _min_hold bigint, _unfinished_keep bigint, _on_lapse text, _label text,
    _not_after timestamptz, _now timestamptz) returns tower_claim.claim language plpgsql as $$
begin
    r.attempt := case when tower_claim.standing_v1(r, _now) = 'lapsed' then r.attempt + 1 else 1 end;
    if r.state <> 'vacant' then
        perform tower_claim.ring_v1(r);
        r := tower_claim.spend_v1(r, r.nonce, r.not_after, _now);
    end if;
    r.state := 'held'; r.token := _token; r.nonce := _nonce; r.not_after := _not_after; r.fingerprint := _fingerprint;
    r.lease := _lease * interval '1 microsecond'; r.cooling := _cooling * interval '1 microsecond';
    r.min_hold := _min_hold * interval '1 microsecond'; r.unfinished_keep := _unfinished_keep * interval '1 microsecond';
    r.on_lapse := _on_lapse; r.label := _label;
    r.since := _now; r.until := _now + r.lease; r.last_beat := _now; r.progress := 0;
    r.marked := false; r.revoke_asked := false; r.watched := false; r.not_before := null; r.value := null;
    return r;
end $$;

-- What the new owner hears of it.
create or replace function tower_claim.grant_v1(r tower_claim.claim, _before tower_claim.claim, _now timestamptz) returns tower_claim.claimed_v1 language plpgsql as $$
declare a tower_claim.claimed_v1;
begin
    a.at := tower_claim.micros_v1(_now); a.answer := 'granted'; a.key := r.key; a.token := r.token;
    a.attempt := r.attempt; a.rest := tower_claim.left_v1(r.until, _now);
    if tower_claim.standing_v1(_before, _now) = 'lapsed' then
        a.took_token := _before.token; a.took_progress := _before.progress;
        a.took_since := tower_claim.left_v1(_now, _before.since); a.took_beat := tower_claim.left_v1(_now, _before.last_beat);
    end if;
    return a;
end $$;

-- Claims a key. Reads first: only a claim that may be granted locks or writes anything.
create or replace function tower_claim.claim_v1(_key bytea, _nonce bytea, _fingerprint bytea,
    _lease bigint, _cooling bigint, _min_hold bigint, _unfinished_keep bigint, _on_lapse text, _label text,
    _floor bigint, _not_after bigint, _lock_ms integer) returns tower_claim.claimed_v1 language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    before tower_claim.claim;
    a tower_claim.claimed_v1;
    now timestamptz;
    limit_at timestamptz := tower_claim.instant_v1(_not_after);
    bound text;
begin
    for round in 1..16 loop
        select * into was from tower_claim.claim c where c.key = _key;
        now := clock_timestamp();
        r := tower_claim.seen_v1(was, _key, now);
        a := tower_claim.refusal_v1(r, _nonce, _fingerprint, limit_at, now);
        -- A later copy of the same claim than any seen: then it is remembered longer, below.
        if a.answer is not null and (a.answer not in ('mine', 'ended') or r.nonce <> _nonce or limit_at <= r.not_after) then
            return a;
        end if;
        bound := tower_claim.bound_v1(_lock_ms);
        if was.key is null then
            r := tower_claim.granted_v1(r, _nonce, _fingerprint, tower_claim.next_token_v1(0, _floor, now),
                _lease, _cooling, _min_hold, _unfinished_keep, _on_lapse, _label, limit_at, now);
            r.purge_at := r.until;
            -- Waits for a claim of the key that is being committed, and then finds nothing to insert.
            insert into tower_claim.claim values (r.*) on conflict (key) do nothing;
            if found then
                if clock_timestamp() > now + interval '2 milliseconds' then
                    -- It waited for one that was rolled back: time is judged anew.
                    now := clock_timestamp();
                    if now > limit_at then
                        delete from tower_claim.claim c where c.key = _key;
                        a.at := tower_claim.micros_v1(now); a.answer := 'too late';
                        perform set_config('lock_timeout', bound, true);
                        return a;
                    end if;
                    r.since := now; r.last_beat := now; r.until := now + r.lease;
                    perform tower_claim.save_v1(r);
                end if;
                perform set_config('lock_timeout', bound, true);
                return tower_claim.grant_v1(r, tower_claim.vacant_v1(_key), now);
            end if;
        else
            select * into was from tower_claim.claim c where c.key = _key for no key update;
            if found then
                now := clock_timestamp();
                r := tower_claim.seen_v1(was, _key, now);
                before := r;
                a := tower_claim.refusal_v1(r, _nonce, _fingerprint, limit_at, now);
                if a.answer is null then
                    r := tower_claim.granted_v1(r, _nonce, _fingerprint, tower_claim.next_token_v1(r.token, _floor, now),
                        _lease, _cooling, _min_hold, _unfinished_keep, _on_lapse, _label, limit_at, now);
                    perform tower_claim.save_v1(r);
                    a := tower_claim.grant_v1(r, before, now);
                elsif a.answer in ('mine', 'ended') and r.nonce = _nonce and limit_at > r.not_after then
                    r.not_after := limit_at;
                    perform tower_claim.save_v1(r);
                end if;
                perform set_config('lock_timeout', bound, true);
                return a;
            end if;
        end if;
        -- Lost a race, or the row was purged: read again.
        perform set_config('lock_timeout', bound, true);
    end loop;
    raise exception 'the key is claimed and forgotten faster than it can be read' using errcode = '55P03';
end $$;

-- Claims a key inside a transaction: a claim that meets a locked row is answered 'locked', and the
-- transaction lives on.
create or replace function tower_claim.claim_in_v1(_key bytea, _nonce bytea, _fingerprint bytea,
    _lease bigint, _cooling bigint, _min_hold bigint, _unfinished_keep bigint, _on_lapse text, _label text,
    _floor bigint, _not_after bigint, _lock_ms integer) returns tower_claim.claimed_v1 language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    a tower_claim.claimed_v1;
    now timestamptz;
begin
    return tower_claim.claim_v1(_key, _nonce, _fingerprint, _lease, _cooling, _min_hold, _unfinished_keep,
        _on_lapse, _label, _floor, _not_after, _lock_ms);
exception when lock_not_available then
    select * into was from tower_claim.claim c where c.key = _key;
    now := clock_timestamp();
    a.at := tower_claim.micros_v1(now); a.answer := 'locked'; a.key := _key;
    a.token := coalesce(was.token, 0); a.label := coalesce(was.label, '');
    a.since := coalesce(tower_claim.left_v1(now, was.since), 0); a.rest := coalesce(tower_claim.left_v1(was.until, now), 0);
    -- What is free binds nobody: whoever has locked the row may have any payload.
    a.same_fingerprint := was.key is null or tower_claim.standing_v1(was, now) = 'free'
        or was.fingerprint is not distinct from _fingerprint;
    return a;
end $$;

-- Claims several keys, sorted: all or none.
create or replace function tower_claim.claim_many_v1(_keys bytea[], _nonce bytea,
    _lease bigint, _cooling bigint, _min_hold bigint, _unfinished_keep bigint, _on_lapse text, _label text,
    _floor bigint, _not_after bigint, _lock_ms integer) returns tower_claim.claimed_v1 language plpgsql set enable_seqscan = off as $$
declare
    rows tower_claim.claim[] := '{}';
    was tower_claim.claim;
    r tower_claim.claim;
    k bytea;
    a tower_claim.claimed_v1;
    one tower_claim.claimed_v1;
    now timestamptz;
    limit_at timestamptz := tower_claim.instant_v1(_not_after);
    high bigint := 0;
    bound text;
begin
    foreach k in array _keys loop
        select * into was from tower_claim.claim c where c.key = k;
        now := clock_timestamp();
        a := tower_claim.refusal_v1(tower_claim.seen_v1(was, k, now), _nonce, null, limit_at, now);
        if a.answer is not null then return a; end if;
    end loop;
    bound := tower_claim.bound_v1(_lock_ms);
    begin
        foreach k in array _keys loop
            for round in 1..16 loop
                select * into was from tower_claim.claim c where c.key = k for no key update;
                exit when found;
                r := tower_claim.vacant_v1(k);
                r.state := 'free'; r.purge_at := clock_timestamp();
                insert into tower_claim.claim values (r.*) on conflict (key) do nothing;
            end loop;
            if was.key is null then
                raise exception 'the key is claimed and forgotten faster than it can be read' using errcode = '55P03';
            end if;
            now := clock_timestamp();
            r := tower_claim.seen_v1(was, k, now);
            a := tower_claim.refusal_v1(r, _nonce, null, limit_at, now);
            if a.answer is not null then raise exception 'refused' using errcode = 'TC009'; end if;
            high := greatest(high, r.token);
            rows := array_append(rows, r);
        end loop;
        now := clock_timestamp();
        if now > limit_at then
            a.at := tower_claim.micros_v1(now); a.answer := 'too late'; a.key := _keys[1];
            raise exception 'refused' using errcode = 'TC009';
        end if;
        high := tower_claim.next_token_v1(high, _floor, now);
        foreach was in array rows loop
            r := tower_claim.granted_v1(was, _nonce, null, high, _lease, _cooling, _min_hold, _unfinished_keep,
                _on_lapse, _label, limit_at, now);
            perform tower_claim.save_v1(r);
            one := tower_claim.grant_v1(r, was, now);
            one.attempt := greatest(one.attempt, a.attempt);
            if a.took_token is not null then
                one.took_token := a.took_token; one.took_since := a.took_since;
                one.took_beat := a.took_beat; one.took_progress := a.took_progress;
            end if;
            a := one;
        end loop;
    exception when sqlstate 'TC009' then
        null;
    end;
    perform set_config('lock_timeout', bound, true);
    return a;
end $$;

-- Why this owner does not hold the key any more; null when it does.
create or replace function tower_claim.loss_v1(r tower_claim.claim, _nonce bytea, _token bigint, _now timestamptz) returns text language sql stable as $$
    select case
        when r.state = 'vacant' or r.nonce <> _nonce then 'superseded'
        when r.token <> _token then 'broken'
        when r.state = 'held' and _now < r.until then null
        when r.state = 'held' and _now < r.until + r.unfinished_keep then 'lapsed'
        else 'superseded' end
$$;

-- Renews many holds, and waits for none: a row that somebody has locked is left in doubt.
create or replace function tower_claim.renew_v1(_keys bytea[], _nonces bytea[], _tokens bigint[], _progress bigint[])
    returns table (at bigint, nth bigint, answer text, rest bigint, revoke_asked boolean) language plpgsql set enable_seqscan = off as $$
declare
    beat record;
    was tower_claim.claim;
    r tower_claim.claim;
    locked boolean;
    now timestamptz;
begin
    for beat in select * from unnest(_keys, _nonces, _tokens, _progress) with ordinality as b(key, nonce, token, progress, nth) order by b.key loop
        select * into was from tower_claim.claim c where c.key = beat.key for no key update skip locked;
        locked := found;
        if not locked then select * into was from tower_claim.claim c where c.key = beat.key; end if;
        now := clock_timestamp();
        at := tower_claim.micros_v1(now); nth := beat.nth; rest := null; revoke_asked := null;
        if was.format > 1 then
            answer := 'unsure';
        else
            r := tower_claim.seen_v1(was, beat.key, now);
            answer := tower_claim.loss_v1(r, beat.nonce, beat.token, now);
            if not locked and was.key is not null and (answer is null or answer not in ('broken', 'superseded') or r.state = 'vacant') then
                answer := 'unsure';
            elsif answer is null then
                -- A beat that arrives late, or a lease shorter than what is left, shortens nothing.
                update tower_claim.claim c set until = greatest(r.until, now + r.lease), last_beat = now, progress = greatest(r.progress, beat.progress)
                    where c.key = beat.key;
                answer := 'renewed'; revoke_asked := r.revoke_asked;
                rest := tower_claim.left_v1(greatest(r.until, now + r.lease), now);
            end if;
        end if;
        return next;
    end loop;
end $$;

-- The point of no return.
create or replace function tower_claim.mark_v1(_key bytea, _nonce bytea, _token bigint, _lock_ms integer, out at bigint, out answer text) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    now timestamptz;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    select * into was from tower_claim.claim c where c.key = _key for no key update;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    r := tower_claim.seen_v1(was, _key, now);
    answer := tower_claim.loss_v1(r, _nonce, _token, now);
    if answer is null then
        answer := 'marked';
        if not r.marked then update tower_claim.claim c set marked = true where c.key = _key; end if;
    end if;
    perform set_config('lock_timeout', bound, true);
end $$;

-- Finishes the work. The token decides, not time; the first value wins.
create or replace function tower_claim.finish_v1(_key bytea, _nonce bytea, _token bigint, _value bytea, _keep bigint, _lock_ms integer, out at bigint, out answer text) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    now timestamptz;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    select * into was from tower_claim.claim c where c.key = _key for no key update;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    r := tower_claim.seen_v1(was, _key, now);
    answer := 'lost';
    if r.state in ('held', 'done') and r.nonce = _nonce and r.token = _token and tower_claim.standing_v1(r, now) <> 'free' then
        answer := 'finished';
        if r.state = 'held' then
            perform tower_claim.ring_v1(r);
            perform tower_claim.save_v1(tower_claim.done_v1(r, _value, _keep, r.since + r.min_hold, now));
        end if;
    end if;
    perform set_config('lock_timeout', bound, true);
end $$;

-- Gives the key back. Never touches a done record; a marked one becomes unknown.
create or replace function tower_claim.release_v1(_key bytea, _nonce bytea, _token bigint, _not_after bigint, _lock_ms integer, out at bigint, out answer text) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    before tower_claim.claim;
    r tower_claim.claim;
    standing text;
    now timestamptz;
    limit_at timestamptz := tower_claim.instant_v1(_not_after);
    ours boolean;
    holds boolean;
    passing boolean;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    for round in 1..16 loop
        select * into was from tower_claim.claim c where c.key = _key for no key update;
        now := clock_timestamp();
        at := tower_claim.micros_v1(now);
        r := tower_claim.seen_v1(was, _key, now);
        before := r;
        ours := r.state <> 'vacant' and r.nonce = _nonce;
        holds := ours and (_token is null or _token = r.token);
        standing := tower_claim.standing_v1(r, now);
        answer := 'already';
        if holds and standing = 'held' and r.marked then
            answer := 'released';
            perform tower_claim.ring_v1(r);
            r := tower_claim.unknown_v1(r, now, r.since + r.min_hold);
        elsif holds and standing in ('held', 'lapsed') then
            answer := 'released';
            perform tower_claim.ring_v1(r);
            -- A clean release does not cool.
            r := tower_claim.freed_v1(r, now, r.since + r.min_hold);
        elsif ours and standing in ('done', 'unknown') then
            answer := 'lost';
        end if;
        r := tower_claim.remember_v1(r, _nonce, limit_at, now);
        if was.key is null then
            -- Waits for a claim of the key that is being committed, and then finds it: also where nothing is to
            -- be remembered any more, for that claim may have been judged in time and be slow to commit.
            passing := r.state = 'vacant';
            if passing then r.state := 'free'; end if;
            r.purge_at := now;
            insert into tower_claim.claim values (r.*) on conflict (key) do nothing;
            continue when not found;
            if passing then delete from tower_claim.claim c where c.key = _key; end if;
        elsif r is distinct from before then
            perform tower_claim.save_v1(r);
        end if;
        perform set_config('lock_timeout', bound, true);
        return;
    end loop;
    raise exception 'the key is claimed and forgotten faster than it can be read' using errcode = '55P03';
end $$;

-- Releases many, each for itself; in the order of keys, so that two batches cannot wait for each other.
create or replace function tower_claim.release_many_v1(_keys bytea[], _nonces bytea[], _tokens bigint[], _not_after bigint[], _lock_ms integer)
    returns table (at bigint, nth bigint, answer text) language plpgsql set enable_seqscan = off as $$
declare one record;
begin
    for one in select * from unnest(_keys, _nonces, _tokens, _not_after) with ordinality as b(key, nonce, token, not_after, nth) order by b.key, b.nth loop
        nth := one.nth;
        select x.at, x.answer into at, answer from tower_claim.release_v1(one.key, one.nonce, one.token, one.not_after, _lock_ms) x;
        return next;
    end loop;
end $$;

-- What became of the hold with this token. `_announce`: this asker listens for notifications.
create or replace function tower_claim.look_v1(_key bytea, _token bigint, _announce boolean,
    out at bigint, out answer text, out token bigint, out until bigint, out value bytea, out since bigint, out rest bigint) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    standing text;
    now timestamptz;
begin
    select * into was from tower_claim.claim c where c.key = _key;
    if _announce and was.state = 'held' and was.token = _token and not was.watched and clock_timestamp() < was.until and was.format = 1 then
        perform from tower_claim.claim c where c.key = _key and c.token = _token and c.state = 'held' for no key update skip locked;
        if found then update tower_claim.claim c set watched = true where c.key = _key; end if;
        select * into was from tower_claim.claim c where c.key = _key;
    end if;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    r := tower_claim.seen_v1(was, _key, now);
    standing := tower_claim.standing_v1(r, now);
    answer := 'ended';
    if r.token = _token and standing = 'held' then
        answer := 'until'; until := tower_claim.micros_v1(r.until);
    elsif r.token = _token and standing = 'done' then
        answer := 'done'; token := r.token; value := r.value;
        since := tower_claim.left_v1(now, r.since); rest := tower_claim.left_v1(r.until, now);
    elsif r.token > _token and standing in ('held', 'lapsed', 'done') then
        answer := 'superseded'; token := r.token;
    end if;
end $$;

-- The record as people see it.
create or replace function tower_claim.view_v1(r tower_claim.claim, _now timestamptz) returns tower_claim.viewed_v1 language plpgsql stable as $$
declare
    v tower_claim.viewed_v1;
    standing text := tower_claim.standing_v1(r, _now);
    began timestamptz := r.since;
    ends timestamptz := r.until;
begin
    v.at := tower_claim.micros_v1(_now); v.key := r.key; v.token := r.token; v.nonce := r.nonce;
    v.state := case standing when 'lapsed' then 'held' else standing end;
    v.label := ''; v.last_beat := 0; v.progress := 0; v.marked := false; v.lapsed := false; v.attempt := 0;
    if standing = 'free' then
        began := case r.state when 'held' then r.until + r.unfinished_keep when 'free' then r.since else r.until end;
        ends := tower_claim.not_before_v1(r);
    elsif standing = 'unknown' and r.state = 'held' then
        began := r.until; ends := r.until + r.unfinished_keep;
    end if;
    v.since := tower_claim.left_v1(_now, began); v.rest := tower_claim.left_v1(ends, _now);
    if standing = 'free' then return v; end if;
    v.label := r.label; v.fingerprint := r.fingerprint;
    if r.state in ('held', 'unknown') then
        v.last_beat := tower_claim.left_v1(_now, r.last_beat); v.progress := r.progress; v.marked := r.marked;
        v.lapsed := r.state = 'held' and _now >= r.until;
        if r.state = 'held' then v.attempt := r.attempt; end if;
    end if;
    return v;
end $$;

-- Records in the order of their keys, from `_from` on. A peek is a scan of one key.
create or replace function tower_claim.scan_v1(_from bytea, _to bytea, _limit integer) returns setof tower_claim.viewed_v1 language plpgsql set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    was tower_claim.claim;
    seen integer := 0;
    now timestamptz;
begin
    for was in select * from tower_claim.claim c where c.key between _from and coalesce(_to, decode(repeat('ff', 32), 'hex')) order by c.key loop
        exit when seen >= _limit;
        now := clock_timestamp();
        was := tower_claim.seen_v1(was, was.key, now);
        if was.state <> 'vacant' then
            seen := seen + 1;
            return next tower_claim.view_v1(was, now);
        end if;
    end loop;
end $$;

-- Settles an unknown outcome: done with a value or a tombstone, or, without a keep, absent.
create or replace function tower_claim.resolve_v1(_key bytea, _token bigint, _value bytea, _keep bigint, _lock_ms integer, out at bigint, out answer text, out token bigint) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    now timestamptz;
    not_before timestamptz;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    select * into was from tower_claim.claim c where c.key = _key for no key update;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    r := tower_claim.seen_v1(was, _key, now);
    token := r.token;
    if r.state = 'vacant' then
        answer := 'absent';
    elsif tower_claim.standing_v1(r, now) <> 'unknown' or r.token <> _token then
        answer := 'conflict';
    else
        answer := 'resolved';
        token := tower_claim.next_token_v1(r.token, 0, now);
        not_before := tower_claim.not_before_v1(r);
        if _keep is null then
            r := tower_claim.freed_v1(r, now, not_before);
        else
            r := tower_claim.done_v1(r, _value, _keep, not_before, now);
        end if;
        r.token := token;
        perform tower_claim.save_v1(r);
    end if;
    perform set_config('lock_timeout', bound, true);
end $$;

-- Asks the owner to stop: it hears of it with its next beat.
create or replace function tower_claim.ask_revoke_v1(_key bytea, _token bigint, _lock_ms integer, out at bigint, out answer text) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    now timestamptz;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    select * into was from tower_claim.claim c where c.key = _key for no key update;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    r := tower_claim.seen_v1(was, _key, now);
    answer := 'no such hold';
    if tower_claim.standing_v1(r, now) = 'held' and r.token = _token then
        answer := 'asked';
        update tower_claim.claim c set revoke_asked = true where c.key = _key;
    end if;
    perform set_config('lock_timeout', bound, true);
end $$;

-- Ends a hold by force. The owner may be at work still: the key cools from now on, as after a crash.
create or replace function tower_claim.break_v1(_key bytea, _token bigint, _lock_ms integer, out at bigint, out answer text, out token bigint) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    now timestamptz;
    not_before timestamptz;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    select * into was from tower_claim.claim c where c.key = _key for no key update;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    r := tower_claim.seen_v1(was, _key, now);
    token := r.token;
    if r.state = 'vacant' then
        answer := 'absent';
    elsif r.state <> 'held' or r.token <> _token or tower_claim.standing_v1(r, now) not in ('held', 'lapsed') then
        answer := 'conflict';
    else
        answer := 'broken';
        token := tower_claim.next_token_v1(r.token, 0, now);
        perform tower_claim.ring_v1(r);
        -- The record stays until the owner's next beat has learnt who ended its hold.
        r.not_after := greatest(r.not_after, r.until);
        -- Cooling counts from the end of the hold, which is now where it has not lapsed before.
        r.until := least(r.until, now);
        not_before := tower_claim.not_before_v1(r);
        if r.marked or r.on_lapse = 'hold' then
            r := tower_claim.unknown_v1(r, now, not_before);
        else
            r := tower_claim.freed_v1(r, now, not_before);
        end if;
        r.token := token;
        perform tower_claim.save_v1(r);
    end if;
    perform set_config('lock_timeout', bound, true);
end $$;

-- Drops a result: the key is free again, and nothing of the work is left.
create or replace function tower_claim.purge_done_v1(_key bytea, _token bigint, _lock_ms integer, out at bigint, out answer text, out token bigint) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    r tower_claim.claim;
    standing text;
    now timestamptz;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    select * into was from tower_claim.claim c where c.key = _key for no key update;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    r := tower_claim.seen_v1(was, _key, now);
    standing := tower_claim.standing_v1(r, now);
    token := r.token;
    if standing = 'free' then
        answer := 'absent';
        -- Whoever hears that nothing is there may count on it: also where a keep has passed, and nobody has
        -- looked at the row since.
        if was.state = 'done' then
            perform tower_claim.save_v1(tower_claim.freed_v1(was, was.until, was.until));
        end if;
    elsif standing <> 'done' or r.token <> _token then
        answer := 'conflict';
    else
        answer := 'purged';
        token := tower_claim.next_token_v1(r.token, 0, now);
        r := tower_claim.freed_v1(r, now, coalesce(r.not_before, now));
        r.token := token;
        perform tower_claim.save_v1(r);
    end if;
    perform set_config('lock_timeout', bound, true);
end $$;

-- Whether this owner holds the key still; nobody takes it over before this transaction ends. Last before the
-- commit, for it keeps the owner's own beats waiting too.
create or replace function tower_claim.still_held_v1(_key bytea, _nonce bytea, _token bigint, _lock_ms integer, out at bigint, out answer text) language plpgsql set enable_seqscan = off as $$
declare
    was tower_claim.claim;
    now timestamptz;
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    select * into was from tower_claim.claim c where c.key = _key for share;
    now := clock_timestamp();
    at := tower_claim.micros_v1(now);
    answer := coalesce(tower_claim.loss_v1(tower_claim.seen_v1(was, _key, now), _nonce, _token, now), 'held');
    perform set_config('lock_timeout', bound, true);
end $$;

-- Admits a write and raises the mark. `_stay`: inside a transaction, which must keep the mark's row until it
-- commits, so that no newer token overtakes it.
create or replace function tower_claim.fence_admit_v1(_resource bytea, _name text, _token bigint, _nonce bytea, _stay boolean, _lock_ms integer, out answer text, out high bigint) language plpgsql set enable_seqscan = off as $$
declare
    f tower_claim.fence;
    _id bytea := sha256(_resource);
    bound text;
begin
    if not _stay then
        select * into f from tower_claim.fence x where x.id = _id;
        if f.high > _token or (f.high = _token and f.nonce = _nonce) then
            high := f.high;
            answer := case when f.high > _token then 'stale' else 'admitted' end;
            return;
        end if;
    end if;
    bound := tower_claim.bound_v1(_lock_ms);
    for round in 1..16 loop
        select * into f from tower_claim.fence x where x.id = _id for no key update;
        if not found and _token = 0 then
            answer := 'stale'; high := 0;
            exit;
        elsif not found then
            answer := 'admitted'; high := _token;
            insert into tower_claim.fence values (_id, _name, _token, _nonce, clock_timestamp()) on conflict (id) do nothing;
            exit when found;
        elsif _token > f.high then
            answer := 'admitted'; high := _token;
            update tower_claim.fence x set high = _token, nonce = _nonce, since = clock_timestamp() where x.id = _id;
            exit;
        else
            high := f.high;
            answer := case when _token < f.high or f.nonce is null then 'stale' when f.nonce = _nonce then 'admitted' else 'collision' end;
            exit;
        end if;
    end loop;
    perform set_config('lock_timeout', bound, true);
end $$;

-- Refuses every token at or below the floor from now on; answers the mark.
create or replace function tower_claim.fence_raise_v1(_resource bytea, _name text, _floor bigint, _lock_ms integer, out high bigint) language plpgsql set enable_seqscan = off as $$
declare
    f tower_claim.fence;
    _id bytea := sha256(_resource);
    bound text := tower_claim.bound_v1(_lock_ms);
begin
    for round in 1..16 loop
        select * into f from tower_claim.fence x where x.id = _id for no key update;
        high := coalesce(f.high, 0);
        exit when _floor = 0 or _floor < high;
        high := _floor;
        if f.id is null then
            insert into tower_claim.fence values (_id, _name, _floor, null, clock_timestamp()) on conflict (id) do nothing;
            exit when found;
        else
            update tower_claim.fence x set high = _floor, nonce = null, since = clock_timestamp() where x.id = _id;
            exit;
        end if;
    end loop;
    perform set_config('lock_timeout', bound, true);
end $$;

-- The mark, 0 where nothing was admitted.
create or replace function tower_claim.fence_high_v1(_resource bytea, out high bigint) language sql stable set enable_seqscan = off as
$$ select coalesce((select x.high from tower_claim.fence x where x.id = sha256(_resource)), 0) $$;

-- Looks at the rows that are due, and drops those with nothing left to say; waits for no lock. Answers how many
-- it looked at and how many it dropped.
create or replace function tower_claim.purge_v1(_batch integer, out at bigint, out seen bigint, out dropped bigint) language plpgsql set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    was tower_claim.claim;
    now timestamptz := clock_timestamp();
begin
    at := tower_claim.micros_v1(now); seen := 0; dropped := 0;
    for was in select * from tower_claim.claim c where c.purge_at <= now and c.format = 1 order by c.purge_at limit _batch for update skip locked loop
        seen := seen + 1;
        if tower_claim.forgettable_v1(was, now) then
            delete from tower_claim.spent s where s.key = was.key;
            delete from tower_claim.claim c where c.key = was.key;
            dropped := dropped + 1;
        else
            -- When it may be forgotten, as far as is known; once a day at least, for it may be claimed anew. A hold
            -- may be released at any time: it is looked at again after as long as it has stood.
            update tower_claim.claim c set purge_at = least(now + interval '1 day', greatest(now + interval '1 second',
                case was.state when 'held' then least(was.until + was.unfinished_keep, now + (now - was.since)) else was.until end,
                was.not_after, coalesce(was.spent_latest, was.not_after)))
            where c.key = was.key;
        end if;
    end loop;
end $$;

insert into tower_claim.meta as m (format, functions) values (1, 1)
    on conflict (only_row) do update set functions = greatest(m.functions, excluded.functions);
commit;
