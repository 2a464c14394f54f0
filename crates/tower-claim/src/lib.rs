//! The claim: who does this piece of work, are they still at it, and what came out.
