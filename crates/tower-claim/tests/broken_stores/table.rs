//! For each law, the one rule that its broken store breaks.

pub(crate) const BROKEN: &[(&str, &str)] = &[
    // claims
    ("a_free_key_is_granted", "a free key is refused"),
    (
        "a_grant_tells_lease_and_attempt",
        "the lease told is twice the lease",
    ),
    ("two_keys_do_not_meet", "all keys are one"),
    ("a_held_key_is_busy", "a held key is granted again"),
    ("busy_tells_of_the_holder", "busy tells the asker's label"),
    (
        "busy_tells_whether_the_fingerprint_is_the_same",
        "busy calls every fingerprint the same",
    ),
    (
        "of_racing_claims_one_is_granted",
        "a claim looks, then takes",
    ),
    ("a_finished_key_is_done", "a result is dropped"),
    ("done_tells_age_and_keep", "done tells no age"),
    (
        "done_tells_whether_the_fingerprint_is_the_same",
        "done calls every fingerprint the same",
    ),
    ("done_outlives_the_lease", "a result ends with the lease"),
    (
        "a_done_key_is_free_after_its_keep",
        "a result is kept for ever",
    ),
    (
        "a_tombstone_is_answered_as_one",
        "a tombstone is answered as an empty body",
    ),
    (
        "a_claim_past_its_not_after_is_too_late",
        "not_after is ignored",
    ),
    (
        "a_claim_before_its_not_after_is_in_time",
        "every not_after has passed",
    ),
    ("the_stores_time_moves_on", "the store's time stands still"),
    (
        "the_keepers_store_is_the_same_store",
        "the keeper's store is another store",
    ),
    // nonces
    ("the_same_nonce_again_is_mine", "the same nonce is busy"),
    ("mine_tells_what_is_left", "mine tells a full lease"),
    ("mine_does_not_lengthen_the_lease", "mine renews"),
    (
        "mine_after_a_lapse_changes_nothing",
        "a lapsed nonce is granted again",
    ),
    (
        "a_released_nonce_is_never_granted_again",
        "a released nonce is forgotten",
    ),
    (
        "a_superseded_nonce_is_never_granted_again",
        "a superseded nonce is forgotten",
    ),
    (
        "a_finished_nonce_is_never_granted_again",
        "a finished nonce is forgotten",
    ),
    (
        "a_spent_nonce_is_remembered_beside_a_live_holder",
        "a grant forgets the nonces before it",
    ),
    (
        "every_spent_nonce_is_remembered",
        "only the last two spent nonces are remembered",
    ),
    (
        "a_spent_nonce_is_remembered_until_its_not_after",
        "a spent nonce is remembered for one lease",
    ),
    (
        "a_nonce_released_before_its_claim_is_refused",
        "a release of nothing is not remembered",
    ),
    (
        "a_nonce_refused_beside_a_live_holder_is_remembered",
        "a release beside a live holder is not remembered",
    ),
    (
        "a_refused_nonce_bars_nobody_else",
        "a release of nothing bars the key",
    ),
    // tokens
    ("the_token_is_above_the_floor", "the floor is ignored"),
    (
        "a_floor_below_changes_nothing",
        "a floor replaces the token",
    ),
    ("tokens_rise_over_release", "a release forgets the token"),
    ("tokens_rise_over_lapse", "a takeover keeps the token"),
    (
        "tokens_rise_over_the_keep_of_a_result",
        "the end of a keep forgets the token",
    ),
    (
        "tokens_rise_over_the_unfinished_keep",
        "the end of an unfinished keep forgets the token",
    ),
    (
        "tokens_rise_when_the_key_was_forgotten",
        "a forgotten key restarts its tokens",
    ),
    (
        "tokens_rise_when_wall_time_goes_back",
        "the token is the clock alone",
    ),
    // lapse
    (
        "a_lapsed_hold_is_taken_over",
        "a lapsed hold is busy for ever",
    ),
    (
        "a_hold_does_not_lapse_early",
        "a hold lapses at half its lease",
    ),
    (
        "a_takeover_tells_of_the_owner_before",
        "a takeover tells nothing",
    ),
    ("attempts_count_takeovers", "every grant is attempt 1"),
    (
        "a_takeover_needs_the_same_fingerprint",
        "a takeover asks for no fingerprint",
    ),
    (
        "a_lapsed_hold_keeps_its_fingerprint_until_free",
        "the unfinished keep is ignored",
    ),
    (
        "an_unfinished_record_is_free_after_its_keep",
        "an unfinished record binds for ever",
    ),
    (
        "a_finish_after_the_unfinished_keep_is_lost",
        "a free record can be finished",
    ),
    ("hold_lapses_into_unknown", "Hold is taken over"),
    (
        "unknown_tells_whose_and_whether_the_same",
        "unknown calls every fingerprint the same",
    ),
    (
        "unknown_does_not_end_before_its_keep",
        "the unknown keep counts from the grant",
    ),
    ("unknown_is_free_after_its_keep", "unknown stays for ever"),
    (
        "a_finish_after_the_unknown_keep_is_lost",
        "a free record can be finished",
    ),
    (
        "no_keep_ends_a_live_hold",
        "the unfinished keep ends a live hold",
    ),
    // terms
    ("a_lapsed_hold_cools", "cooling is ignored"),
    ("cooling_ends", "cooling never ends"),
    (
        "cooling_tells_how_long_and_whether_the_same",
        "cooling tells nothing",
    ),
    ("a_clean_release_does_not_cool", "a release cools"),
    (
        "min_hold_outlives_the_release",
        "min_hold ends with the release",
    ),
    ("min_hold_ends", "min_hold never ends"),
    (
        "min_hold_does_not_lengthen_a_lease",
        "min_hold counts from the release",
    ),
    (
        "the_records_own_cooling_judges",
        "the asker's cooling judges",
    ),
    ("the_records_own_policy_judges", "the asker's policy judges"),
    ("the_records_own_keep_judges", "the asker's keep judges"),
    (
        "a_released_key_binds_no_fingerprint",
        "a released key binds its fingerprint",
    ),
    // beats
    ("a_renewal_lengthens_the_hold", "a renewal renews nothing"),
    ("a_renewed_hold_still_lapses", "a renewal lasts for ever"),
    ("a_renewal_never_shortens", "a renewal halves the lease"),
    ("a_renewal_tells_what_is_left", "a renewal tells no rest"),
    (
        "a_renewal_compares_the_token",
        "a renewal ignores the token",
    ),
    (
        "a_renewal_compares_the_nonce",
        "a renewal ignores the nonce",
    ),
    (
        "a_lapsed_hold_is_not_renewed",
        "a renewal takes a lapsed hold",
    ),
    (
        "a_superseded_hold_is_not_renewed",
        "a superseded hold is told as lapsed",
    ),
    (
        "a_superseded_hold_is_not_renewed",
        "a renewal asks for no owner",
    ),
    (
        "a_released_hold_is_not_renewed",
        "a released hold is renewed",
    ),
    (
        "a_finished_hold_is_not_renewed",
        "a finished hold is renewed",
    ),
    (
        "an_unknown_hold_is_not_renewed",
        "an unknown hold is renewed",
    ),
    (
        "beats_are_answered_in_order",
        "beats are answered in reverse",
    ),
    (
        "a_batch_renews_every_hold",
        "only sixteen beats of a batch are applied",
    ),
    (
        "an_empty_batch_is_answered_empty",
        "an empty batch is an error",
    ),
    ("a_beat_carries_progress", "a beat carries no progress"),
    // marks
    ("a_marked_hold_lapses_into_unknown", "the mark is ignored"),
    ("a_mark_repeated_is_marked", "a mark repeated is lost"),
    ("a_mark_compares_the_token", "a mark ignores the token"),
    ("a_mark_compares_the_nonce", "a mark ignores the nonce"),
    ("a_lapsed_hold_is_not_marked", "a mark takes a lapsed hold"),
    (
        "a_superseded_hold_is_not_marked",
        "a mark asks for no owner",
    ),
    ("a_mark_does_not_renew", "a mark renews"),
    (
        "a_marked_owner_finishes",
        "a marked hold cannot be finished",
    ),
    (
        "a_mark_ends_with_its_record",
        "the mark outlives its record",
    ),
    // results
    ("finish_compares_the_token", "finish ignores the token"),
    ("finish_compares_the_nonce", "finish ignores the nonce"),
    ("a_finish_without_a_grant_is_lost", "finish makes a record"),
    (
        "a_lapsed_owner_can_finish",
        "a lapsed hold cannot be finished",
    ),
    (
        "an_unknown_by_lapse_can_be_finished",
        "unknown cannot be finished",
    ),
    ("a_stale_owner_cannot_finish", "finish asks for no owner"),
    (
        "a_released_owner_cannot_finish",
        "a free record can be finished",
    ),
    (
        "a_marked_and_released_owner_cannot_finish",
        "unknown by release can be finished",
    ),
    ("a_finish_repeated_is_finished", "a finish repeated is lost"),
    ("the_first_value_wins", "the last value wins"),
    (
        "a_finish_repeated_does_not_lengthen_the_keep",
        "a finish repeated renews the keep",
    ),
    (
        "a_finish_over_its_keep_never_replaces_a_new_result",
        "a done record is finished by anyone",
    ),
    (
        "a_stale_owner_cannot_replace_a_result",
        "a done record is finished by anyone",
    ),
    (
        "a_finish_binds_its_fingerprint",
        "a result forgets its fingerprint",
    ),
    // releases
    ("a_release_frees_the_key", "a release does nothing"),
    (
        "a_release_by_nonce_alone_frees_the_key",
        "a release needs the token",
    ),
    (
        "a_release_repeated_is_already",
        "a release repeated is released",
    ),
    (
        "a_release_compares_the_nonce",
        "a release ignores the nonce",
    ),
    (
        "a_release_compares_the_token",
        "a release ignores the token",
    ),
    (
        "a_lapsed_hold_can_be_released",
        "a lapsed hold cannot be released",
    ),
    (
        "a_late_release_leaves_the_next_owner_alone",
        "a release asks for no owner",
    ),
    ("a_release_never_touches_done", "a release drops the result"),
    (
        "a_strangers_release_never_touches_done",
        "any release drops the result",
    ),
    (
        "a_marked_release_is_unknown",
        "a marked hold is released into free",
    ),
    ("a_release_never_touches_unknown", "a release drops unknown"),
    (
        "a_release_leaves_other_keys_alone",
        "a release frees every key of its nonce",
    ),
    // watchers
    ("a_watcher_sees_the_result", "a watcher is told no result"),
    ("a_watcher_sees_the_release", "a release wakes nobody"),
    ("a_watcher_sees_the_lapse", "a lapse wakes nobody"),
    ("a_watcher_sees_hold_lapse", "a lapse of Hold wakes nobody"),
    (
        "a_watcher_sees_the_next_owner",
        "a watcher follows the next owner",
    ),
    (
        "a_late_watcher_is_answered_at_once",
        "a watcher waits for a change first",
    ),
    (
        "a_watcher_of_nothing_is_answered_at_once",
        "a watcher of nothing waits",
    ),
    ("a_watcher_outlasts_a_renewal", "a renewal ends the watch"),
    (
        "a_watcher_of_a_renewed_hold_sees_the_lapse",
        "a watcher counts on the first lease",
    ),
    ("every_watcher_is_woken", "one watcher is woken"),
    ("no_wake_up_is_lost", "a watcher looks, then listens"),
    // peeks
    ("peek_shows_the_owner", "peek hides the owner"),
    ("peek_shows_age_and_end", "peek tells no age"),
    (
        "peek_shows_progress_and_last_beat",
        "peek tells no progress",
    ),
    ("peek_shows_the_mark", "peek hides the mark"),
    ("peek_shows_a_lapse", "peek hides the lapse"),
    (
        "peek_shows_hold_lapsed_as_unknown",
        "peek shows a lapsed Hold as held",
    ),
    (
        "peek_shows_done_until_its_keep_has_passed",
        "peek shows done for ever",
    ),
    (
        "peek_shows_a_released_key_as_free",
        "peek shows a released key as held",
    ),
    ("peek_of_a_key_never_seen_is_free", "peek makes a record"),
    ("peek_changes_nothing", "peek renews"),
    // several keys
    (
        "several_free_keys_are_granted_together",
        "several keys get the first only",
    ),
    ("one_held_key_refuses_all", "a held key is skipped"),
    ("a_refusal_takes_nothing", "a refusal keeps what it took"),
    (
        "one_token_above_all_of_theirs",
        "each key gets its own token",
    ),
    (
        "the_common_token_is_above_the_floor",
        "several keys ignore the floor",
    ),
    (
        "several_keys_again_are_mine",
        "several keys again are granted",
    ),
    (
        "a_lapsed_key_is_taken_over_with_the_others",
        "several keys never take over",
    ),
    ("a_done_key_refuses_all", "several keys ignore done"),
    ("a_cooling_key_refuses_all", "several keys ignore cooling"),
    (
        "several_keys_past_not_after_are_too_late",
        "several keys ignore not_after",
    ),
    (
        "a_spent_nonce_is_not_granted_several_keys",
        "several keys ignore spent nonces",
    ),
    (
        "the_common_terms_are_in_every_record",
        "only the first record gets the terms",
    ),
    (
        "crossing_claims_are_never_both_granted",
        "several keys are looked at, then taken",
    ),
    (
        "a_release_of_many_is_answered_in_order",
        "many releases are answered in reverse",
    ),
    (
        "a_release_of_many_frees_every_key",
        "many releases free the first only",
    ),
    // operators
    (
        "a_scan_shows_every_record_once",
        "a scan shows the border twice",
    ),
    ("a_scan_keeps_its_limit", "a scan ignores its limit"),
    (
        "a_resolve_to_done_is_answered_as_done",
        "a resolve to done frees",
    ),
    (
        "a_resolve_to_done_is_kept_for_its_keep",
        "a resolve to done is kept for ever",
    ),
    (
        "a_resolve_to_absent_frees_the_key",
        "a resolve changes nothing",
    ),
    ("a_resolve_raises_the_token", "a resolve keeps the token"),
    (
        "a_resolve_compares_the_token",
        "a resolve ignores the token",
    ),
    ("a_resolve_leaves_held_alone", "a resolve takes a held key"),
    ("a_resolve_leaves_done_alone", "a resolve takes a done key"),
    (
        "a_resolve_of_nothing_is_absent",
        "a resolve of nothing is resolved",
    ),
    (
        "a_resolved_owner_cannot_finish",
        "a resolved hold can be finished",
    ),
    (
        "a_resolved_nonce_is_never_granted_again",
        "a resolve forgets the nonce",
    ),
    ("a_break_frees_the_key", "a break changes nothing"),
    ("a_break_raises_the_token", "a break keeps the token"),
    ("a_break_compares_the_token", "a break ignores the token"),
    ("a_break_leaves_done_alone", "a break takes a done key"),
    (
        "a_break_leaves_unknown_alone",
        "a break takes an unknown key",
    ),
    (
        "a_break_of_nothing_is_absent",
        "a break of nothing is broken",
    ),
    ("a_break_of_hold_is_unknown", "a break frees Hold"),
    (
        "a_break_of_a_marked_hold_is_unknown",
        "a break frees a marked hold",
    ),
    (
        "a_broken_owner_is_told_so",
        "a broken owner is told superseded",
    ),
    (
        "a_broken_owner_cannot_finish",
        "a broken hold can be finished",
    ),
    (
        "a_broken_owner_cannot_finish_the_unknown",
        "a broken unknown can be finished",
    ),
    (
        "a_broken_nonce_is_never_granted_again",
        "a break forgets the nonce",
    ),
    (
        "a_late_release_leaves_a_broken_hold_unknown",
        "a release drops a broken unknown",
    ),
    ("a_watcher_sees_the_break", "a break wakes nobody"),
    (
        "a_wish_to_stop_reaches_the_owner",
        "a wish to stop is not told",
    ),
    (
        "a_wish_to_stop_compares_the_token",
        "a wish to stop ignores the token",
    ),
    (
        "a_wish_to_stop_ends_with_its_hold",
        "a wish to stop outlives its hold",
    ),
    // the guard
    ("a_first_write_is_admitted", "nothing is admitted"),
    ("the_same_owner_writes_again", "an owner writes once"),
    (
        "a_newer_token_is_admitted",
        "only the first owner is admitted",
    ),
    ("a_stale_token_is_refused", "a stale token is admitted"),
    (
        "a_stale_token_is_refused_whatever_its_nonce",
        "the holder's nonce admits any token",
    ),
    (
        "an_equal_token_of_another_nonce_collides",
        "the nonce is not compared",
    ),
    (
        "a_refusal_raises_nothing",
        "a refused token lowers the mark",
    ),
    (
        "a_collision_leaves_the_owner_in_place",
        "a collision takes the mark",
    ),
    (
        "a_floor_refuses_tokens_up_to_it",
        "a floor leaves its token free",
    ),
    (
        "a_floor_shuts_out_the_owner",
        "a floor at the mark is ignored",
    ),
    (
        "a_floor_admits_tokens_above_it",
        "a floor bars the next token too",
    ),
    ("a_floor_is_never_lowered", "a floor lowers the floor"),
    (
        "a_floor_below_the_mark_lowers_nothing",
        "a floor lowers the mark",
    ),
    ("raising_the_floor_tells_the_mark", "raising tells zero"),
    (
        "the_mark_of_a_resource_never_written_is_zero",
        "the mark begins at one",
    ),
    (
        "the_high_water_mark_heals",
        "the high-water mark forgets the floor",
    ),
    ("two_resources_do_not_meet", "all resources are one"),
    (
        "racing_writes_leave_the_highest_mark",
        "a write looks, then raises",
    ),
];
