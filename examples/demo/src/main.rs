//! A classroom where an announcement was once sent many times, and the layers that stop that: one axum app
//! with all of them, a page to play with, and a tour in the terminal.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

mod announcements;
mod app;
mod board;
mod catalogue;
mod client;
mod enrolments;
mod reentrant;
mod seats;
mod serve;
mod store;
mod tour;

use std::net::SocketAddr;
use std::process::ExitCode;

use store::Store;
use tour::Plan;

const USAGE: &str = "\
usage: demo [--listen ADDR] [--store STORE]       serve; on 127.0.0.1:3000 by default
       demo tour [--scene NAME] [--store STORE] [--no-time-gate]
                                                play five scenes, or one

STORE keeps the claims: memory: (the default), redb:PATH, redis://HOST:PORT/DB, redis+unix:PATH,
  postgres://USER@HOST/DB, or etcd://HOST:PORT (built with `--features etcd`)
scenes: send-once, merge, zombie-owner, double-click, stuck
--no-time-gate: times are shown, and fail nothing (for a machine that does other work, too)";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match parse(&args) {
        Some(Wish::Serve(address, store)) => serve::run(address, &store),
        Some(Wish::Tour(plan)) => tour::run(&plan),
        Some(Wish::Help) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

enum Wish {
    Serve(SocketAddr, Store),
    Tour(Plan),
    Help,
}

fn parse(args: &[&str]) -> Option<Wish> {
    match args {
        ["--help" | "-h"] | ["tour", "--help" | "-h"] => Some(Wish::Help),
        ["tour", options @ ..] => plan(options).map(Wish::Tour),
        options => serving(options),
    }
}

fn serving(mut options: &[&str]) -> Option<Wish> {
    let mut address = SocketAddr::from(([127, 0, 0, 1], 3000));
    let mut store = Store::default();
    loop {
        options = match options {
            [] => return Some(Wish::Serve(address, store)),
            ["--listen", given, rest @ ..] => {
                address = given.parse().ok()?;
                rest
            }
            ["--store", given, rest @ ..] => {
                store = Store::parse(given)?;
                rest
            }
            _ => return None,
        };
    }
}

fn plan(mut options: &[&str]) -> Option<Plan> {
    let mut plan = Plan::default();
    loop {
        options = match options {
            [] => return Some(plan),
            ["--no-time-gate", rest @ ..] => {
                plan.time_gate = false;
                rest
            }
            ["--scene", name, rest @ ..] => {
                plan.only = Some(tour::scene(name)?);
                rest
            }
            ["--store", given, rest @ ..] => {
                plan.store = Store::parse(given)?;
                rest
            }
            _ => return None,
        };
    }
}
