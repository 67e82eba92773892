//! Sigma rules over JSON lines from standard input, judged by rsigma: `sigma_rate RULES`. Prints one line of JSON.
//!
//! An event names its channel and its id; the log source of rules follows from them, as rsigma's caller has to say it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead};
use std::path::Path;

use rsigma_eval::{Engine, JsonEvent};
use rsigma_parser::{LogSource, parse_sigma_directory};
use serde_json::{Value, json};

/// Categories of rules by the ids of Sysmon's events.
const SYSMON: [(i64, &str); 27] = [
    (1, "process_creation"),
    (2, "file_change"),
    (3, "network_connection"),
    (4, "sysmon_status"),
    (5, "process_termination"),
    (6, "driver_load"),
    (7, "image_load"),
    (8, "create_remote_thread"),
    (9, "raw_access_thread"),
    (10, "process_access"),
    (11, "file_event"),
    (12, "registry_event"),
    (13, "registry_set"),
    (14, "registry_rename"),
    (15, "create_stream_hash"),
    (17, "pipe_created"),
    (18, "pipe_created"),
    (19, "wmi_event"),
    (20, "wmi_event"),
    (21, "wmi_event"),
    (22, "dns_query"),
    (23, "file_delete"),
    (25, "process_tampering"),
    (26, "file_delete_detected"),
    (27, "file_block_executable"),
    (29, "file_executable_detected"),
    (255, "sysmon_error"),
];

fn log_source(event: &Value, sysmon: &HashMap<i64, &str>) -> LogSource {
    let channel = event["Channel"].as_str().unwrap_or("").to_lowercase();
    let id = match &event["EventID"] {
        Value::String(text) => text.parse().unwrap_or(0),
        number => number.as_i64().unwrap_or(0),
    };
    let (category, service) = match (channel.as_str(), id) {
        ("microsoft-windows-sysmon/operational", _) => (sysmon.get(&id).copied(), Some("sysmon")),
        ("security", 4688) => (Some("process_creation"), Some("security")),
        ("microsoft-windows-powershell/operational", 4103) => (Some("ps_module"), Some("powershell")),
        ("microsoft-windows-powershell/operational", 4104) => (Some("ps_script"), Some("powershell")),
        ("microsoft-windows-powershell/operational", _) => (None, Some("powershell")),
        ("windows powershell", 400) => (Some("ps_classic_start"), Some("powershell-classic")),
        ("windows powershell", 600) => (Some("ps_classic_provider_start"), Some("powershell-classic")),
        ("windows powershell", 800) => (Some("ps_classic_script"), Some("powershell-classic")),
        ("windows powershell", _) => (None, Some("powershell-classic")),
        (name @ ("security" | "system" | "application"), _) => (None, Some(name)),
        _ => (None, None),
    };
    LogSource {
        category: category.map(str::to_string),
        product: Some("windows".to_string()),
        service: service.map(str::to_string),
        definition: None,
        custom: HashMap::new(),
    }
}

/// Nanoseconds that the process ran on a processor, as Linux counts them.
fn cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// The largest memory so far, in MB.
fn peak_mb() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() {
    let directory = std::env::args().nth(1).expect("a directory of rules");
    let collection = parse_sigma_directory(Path::new(&directory)).expect("rules that can be read");
    let mut engine = Engine::new();
    let refused = engine.add_rules(&collection.rules).len() + collection.errors.len();
    let sysmon: HashMap<i64, &str> = SYSMON.into_iter().collect();
    let (mut events, mut hits, mut read_ns, mut judge_ns) = (0u64, 0u64, 0u64, 0u64);
    for block in Blocks(io::stdin().lock().lines()) {
        let began_ns = cpu_ns();
        let parsed: Vec<Value> = block.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let read_until_ns = cpu_ns();
        for value in &parsed {
            let found = engine.evaluate_with_logsource(&JsonEvent::borrow(value), &log_source(value, &sysmon));
            hits += found.len() as u64;
        }
        read_ns += read_until_ns - began_ns;
        judge_ns += cpu_ns() - read_until_ns;
        events += parsed.len() as u64;
    }
    let us = |ns: u64| (ns as f64 / events.max(1) as f64 / 100.0).round() / 10.0;
    let found = json!({
        "rules": engine.rule_count(), "refused": refused, "events": events, "hits": hits,
        "parse_us": us(read_ns), "judge_us": us(judge_ns), "peak_mb": peak_mb(),
    });
    println!("{found}");
}

/// Lines, a thousand at a time: the clock of the processor moves on with the scheduler's ticks.
struct Blocks<I>(I);

impl<I: Iterator<Item = io::Result<String>>> Iterator for Blocks<I> {
    type Item = Vec<String>;

    fn next(&mut self) -> Option<Vec<String>> {
        let block: Vec<String> = self.0.by_ref().take(1000).map_while(Result::ok).collect();
        if block.is_empty() { None } else { Some(block) }
    }
}
