//! What a user of the server does to a VM, by `mote-host`, with each agent there is: Debian's, which tell
//! whether the host's half is right, and mote as LXD's and as Incus' agent, which has to do the same.
//! The agents differ in few things; each is a field of `Judge` with its reason.

mod exec;
mod files;
mod reports;
mod world;

use mote_tests::column::Column;
use world::{Judge, World};

const LXD_AGENT: Judge = Judge { column: Column::LxdAgent, killed: 255, mebibytes: 64 };
const INCUS_AGENT: Judge = Judge { column: Column::IncusAgent, killed: 255, mebibytes: 8 };
const MOTE_LXD: Judge = Judge { column: Column::MoteLxd, killed: 137, mebibytes: 64 };
const MOTE_INCUS: Judge = Judge { column: Column::MoteIncus, killed: 137, mebibytes: 8 };

/// All of it, in one VM: booting takes longest.
fn everything(judge: Judge) {
    let mut world = World::boot(judge);
    exec::commands_end_as_they_end_in_the_guest(&world);
    exec::identity_environment_and_directory_are_as_asked(&world);
    exec::signals_and_lost_sockets_reach_the_command(&world);
    exec::output_that_nobody_reads_stops_the_command(&world);
    exec::sockets_that_misbehave_end_the_operation_and_nothing_else(&world);
    exec::a_terminal_has_our_size_and_follows_it(&world);
    exec::an_editor_follows_the_size_while_it_runs(&world);
    exec::the_stream_is_the_same_both_ways(&world);
    files::files_come_and_go_unchanged(&world);
    files::links_modes_and_directories(&world);
    files::a_foreign_client_works_through_the_pipe(&world);
    reports::state_and_metrics_are_what_the_host_decodes(&world);
    reports::metrics_start_no_process(&mut world);
    reports::operations_are_listed_while_they_run(&world);
    reports::guests_hear_what_the_host_sets(&world);
    reports::connections_are_carried_into_the_guest(&mut world);
    assert_eq!(world.guest.sh("grep -c Name /proc/$(cat /run/agent.pid)/status").1, "1\n");
    exec::a_power_cut_is_a_disconnection(world);
}

#[test]
fn debians_lxd_agent() {
    everything(LXD_AGENT);
}

#[test]
fn debians_incus_agent() {
    everything(INCUS_AGENT);
}

#[test]
fn mote_as_lxd_agent() {
    everything(MOTE_LXD);
}

#[test]
fn mote_as_incus_agent() {
    everything(MOTE_INCUS);
}
