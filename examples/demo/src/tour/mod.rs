//! The tour: five scenes over real sockets, a table of each, and a verdict.

mod double_click;
mod merge;
mod send_once;
mod server;
mod stuck;
mod table;
mod zombie_owner;

use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;

use crate::app::Storage;
use crate::client::BoxError;
use crate::store::Store;
use table::Table;

/// What is played, and how strictly.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) only: Option<&'static Scene>,
    /// Whether a time over its limit is a failure.
    pub(crate) time_gate: bool,
    pub(crate) store: Store,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            only: None,
            time_gate: true,
            store: Store::default(),
        }
    }
}

/// One scene.
pub(crate) struct Scene {
    name: &'static str,
    /// What one is about to see.
    intro: fn() -> String,
    play: fn(&Plan, Storage) -> BoxFuture<'_, Result<Act, BoxError>>,
}

impl fmt::Debug for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scene").field(&self.name).finish()
    }
}

static SCENES: [Scene; 5] = [
    send_once::SCENE,
    merge::SCENE,
    zombie_owner::SCENE,
    double_click::SCENE,
    stuck::SCENE,
];

/// The scene of this name.
pub(crate) fn scene(name: &str) -> Option<&'static Scene> {
    SCENES.iter().find(|scene| scene.name == name)
}

/// What was seen in a scene.
#[derive(Debug)]
struct Act {
    table: Table,
    checks: Checks,
    /// What it means, if everything was right.
    verdict: String,
}

/// What ought to be so, and was not.
#[derive(Debug, Default)]
struct Checks {
    wrong: Vec<String>,
}

impl Checks {
    fn equal<T: PartialEq + fmt::Debug>(&mut self, what: &str, got: T, want: T) {
        if got != want {
            self.wrong.push(format!("{what}: {got:?}, not {want:?}"));
        }
    }

    fn holds(&mut self, what: impl Into<String>, is_so: bool) {
        if !is_so {
            self.wrong.push(format!("not so: {}", what.into()));
        }
    }
}

/// Plays the scenes, and answers success if all of them ended rightly.
pub(crate) fn run(plan: &Plan) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let claims = match runtime.block_on(plan.store.open()) {
        Ok(claims) => claims,
        Err(error) => {
            eprintln!("demo: {error}");
            return ExitCode::FAILURE;
        }
    };
    let scenes: Vec<_> = match plan.only {
        Some(scene) => vec![scene],
        None => SCENES.iter().collect(),
    };
    let mut wrong = Vec::new();
    for scene in &scenes {
        println!("\n{}\n\n{}\n", scene.name.to_uppercase(), (scene.intro)());
        let began = Instant::now();
        let storage = Storage::new(claims.clone(), namespace(scene));
        let played = runtime.block_on((scene.play)(plan, storage));
        let took = began.elapsed().as_millis();
        if !tell(scene, played) {
            wrong.push(scene.name);
        }
        println!("    ({took} ms)");
    }
    if wrong.is_empty() {
        println!("\nThe tour ended rightly: {} of {0} scenes.", scenes.len());
        ExitCode::SUCCESS
    } else {
        println!("\nThe tour ended WRONGLY in: {}.", wrong.join(", "));
        ExitCode::FAILURE
    }
}

/// A namespace that no scene and no tour before had: a store may keep what they left.
fn namespace(scene: &Scene) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_millis();
    format!("tour-{}-{}-{now}", scene.name, std::process::id())
}

/// Prints what was seen; whether it was right.
fn tell(scene: &Scene, played: Result<Act, BoxError>) -> bool {
    let name = scene.name;
    match played {
        Ok(act) => {
            println!("{}", act.table);
            if act.checks.wrong.is_empty() {
                println!("  ✓ {name}: {}", act.verdict);
                return true;
            }
            for wrong in act.checks.wrong {
                println!("  ✗ {name}: {wrong}");
            }
            false
        }
        Err(error) => {
            println!("  ✗ {name}: the scene could not be played: {error}");
            false
        }
    }
}

/// How long the tour waits for anything that must happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// Asks until there is an answer; an error when there is none by the deadline.
async fn until<T, F>(what: &str, mut ask: impl FnMut() -> F) -> Result<T, BoxError>
where
    F: Future<Output = Result<Option<T>, BoxError>>,
{
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if Instant::now() >= end {
            return Err(format!("waited {DEADLINE:?} in vain until {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Milliseconds with one decimal.
fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
