//! A business request runs once; its repeats get the first answer.
