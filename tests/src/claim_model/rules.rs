//! The rules of the protocol as switches: a variant is the protocol without one of them.

/// One switch per rule; [`Rules::all`] is the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// A hold that is not renewed lapses.
    pub leases_lapse: bool,
    /// `finish` compares nonce and token with the record's. (Without: it takes the key as it is. The two
    /// name the same grant as long as one nonce is granted once, so the switch drops both.)
    pub token_in_finish: bool,
    /// `release` compares the owner, by nonce where the token is not known.
    pub token_in_release: bool,
    /// `Mine` tells what is left. (Without: a whole lease, counted from the second sending.)
    pub mine_grants_nothing: bool,
    /// `finish` on one's own done record answers `Finished` again.
    pub finish_repeats: bool,
    /// `release` never touches `done`.
    pub release_spares_done: bool,
    /// A marked record is not taken over.
    pub mark_bars_takeover: bool,
    /// A marked record becomes unknown when it is released.
    pub marked_release_is_unknown: bool,
    /// The record's own lapse policy judges it. (Without: the asker's.)
    pub records_own_policy: bool,
    /// Nothing live ends by time. (Without: an engine TTL of one lease, which no renewal pushes.)
    pub nothing_live_ends: bool,
    /// A claim that arrives past its `not_after` changes nothing.
    pub not_after: bool,
    /// A nonce that had its grant is remembered until its `not_after`.
    pub spent_remembered: bool,
    /// `release` on a key it does not hold stores the nonce.
    pub release_stores_nonce: bool,
    /// All copies of one claim carry the first one's `not_after`. (Without: each its own, and the store
    /// knows only those that arrived.)
    pub one_not_after: bool,
    /// The last token outlives what `free` forgets (in the engines: by the clock part of the token).
    pub token_outlives_record: bool,
    /// Owner: the deadline counts from before sending. (Without: from the reply.)
    pub deadline_from_sending: bool,
    /// Owner: `check()` is false from the moment `finish` or `release` is first sent.
    pub belief_ends_at_finish: bool,
    /// Owner: `finish` is repeated for half its keep and one lease at most, then given up.
    pub finish_is_given_up: bool,
    /// Owner: whoever has begun (an effect without a finish, a finish without an answer) sends no clean-up
    /// release.
    pub begun_is_not_released: bool,
    /// Owner: the effect waits for a clear yes to the mark. (Without: sending it is enough.)
    pub clear_yes: bool,
}

impl Rules {
    /// The protocol as it is.
    pub const fn all() -> Self {
        Self {
            leases_lapse: true,
            token_in_finish: true,
            token_in_release: true,
            mine_grants_nothing: true,
            finish_repeats: true,
            release_spares_done: true,
            mark_bars_takeover: true,
            marked_release_is_unknown: true,
            records_own_policy: true,
            nothing_live_ends: true,
            not_after: true,
            spent_remembered: true,
            release_stores_nonce: true,
            one_not_after: true,
            token_outlives_record: true,
            deadline_from_sending: true,
            belief_ends_at_finish: true,
            finish_is_given_up: true,
            begun_is_not_released: true,
            clear_yes: true,
        }
    }
}
