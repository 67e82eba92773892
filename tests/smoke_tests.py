"""The costly tests that `make test` runs as well: one for each role, node kind, sink and join, three of a client.

Node ids below `tests/`; one without parameters stands for all of them. Every test of Spark among them lies in
`streams/end_to_end` or below it, so that a run starts one session.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SMOKE", "SMOKED_PROGRAMMES"]

SMOKED_PROGRAMMES: Final = ("C1", "S1", "S2", "S3", "S5", "S6", "S7")
"""The crash programmes of which a tenth takes a few seconds; a tenth of S9, which needs Spark, lies with the jobs."""

_END_TO_END: Final = "streams/end_to_end/"

_ROLES: Final = (
    "server/test_quickstart.py::test_it_prints_four_things_to_try_and_a_ready_line",
    "server/test_quickstart.py::test_acknowledged_messages_topics_and_offsets_survive_kill_9[options0]",
    "server/test_separate_proxies.py::test_clients_of_each_network_are_told_an_address_that_they_reach_and_send_there",
    "server/test_separate_roles.py::test_the_processes_of_a_local_cluster_end_with_it_even_if_it_is_killed",
    "server/test_separate_roles.py::test_sends_and_reads_go_on_while_all_nameservers_are_down_and_after_they_came_back_empty",
    "server/test_supervised.py::test_a_role_keeps_the_port_that_its_first_start_found",
    "server/test_tls_start.py",
)

_COMMANDS: Final = (
    "cli/sql_shell/test_shell_on_a_terminal.py::test_a_typo_is_shown_with_its_place_and_the_next_shell_remembers_the_statement",
    "cli/test_cluster_commands.py",
    "cli/test_group_commands.py",
    "cli/test_main.py",
    "cli/test_store_command.py",
    "cli/test_produce_and_consume.py::test_what_was_produced_is_consumed",
    "cli/test_topics_and_groups.py",
    "ingest/files/test_ingest_file_command.py::test_lines_arrive_with_file_key_and_tag_and_a_second_run_sends_what_came_since",
)

_CLIENTS: Final = (
    "client/test_blocking_client.py::test_importing_it_brings_in_no_event_loop_and_no_heavy_package",
    "interop/test_official_push_consumer.py::test_a_fifo_group_gets_the_messages_of_a_message_group_in_order",
    "interop/test_official_simple_consumer.py"
    "::test_what_is_sent_is_received_once_with_all_that_was_said_and_acknowledged[in_process]",
    "interop/test_official_transactions.py::test_what_is_committed_comes_and_what_is_rolled_back_never_does[in_process]",
)

_PROGRAMMES: Final = (
    "crash/test_crash_programmes.py::test_a_tenth_of_a_programme_passes",
    "store/test_kill.py",
    "streams/end_to_end/recovery/test_killed_jobs.py::test_a_tenth_of_s9_writes_each_row_once",
)

_BYTES: Final = (
    "protocol/arrow/test_arrow_batch.py"
    "::test_whatever_byte_changes_the_body_is_read_as_the_library_reads_it_or_refused[None]",
)

_JOBS: Final = tuple(
    _END_TO_END + name
    for name in (
        "operators/test_batch_windows_on_spark.py::test_a_batch_job_gives_the_windows_of_a_stream[streaming]",
        "connectors/test_binary_formats.py::test_avro_is_read_and_written_and_what_is_torn_is_set_aside",
        "connectors/test_binary_formats.py::test_rows_leave_by_http_and_changing_ones_for_a_search_engine_that_is_read_again",
        "connectors/test_bulk_jobs.py::test_the_same_job_ends_the_same_by_both_lanes",
        "operators/test_changelogs_as_rows.py::test_changes_are_read_from_rows_and_told_as_rows",
        "operators/test_changing_queries.py::test_changing_queries_add_up_to_what_all_rows_give[micro-batches]",
        "connectors/test_changing_tables.py::test_what_one_job_counts_another_one_reads_as_a_table",
        "connectors/test_connected_jobs.py::test_a_connector_of_another_package_is_written_and_read_by_sql",
        "connectors/test_database_jobs.py::test_a_micro_batch_that_is_repeated_is_in_the_tables_once",
        "joins/test_dimension_joins.py::test_a_micro_batch_joins_one_version_and_the_same_when_it_is_repeated",
        "operators/test_event_time.py::test_a_row_behind_the_watermark_is_left_out_and_counted_as_late",
        "recovery/test_job_failures.py::test_a_bounded_job_without_windows_goes_on_where_the_last_run_ended",
        "functions/test_learning_on_spark.py::test_scores_are_those_of_the_plain_formulas_in_the_stream_and_in_the_batch",
        "joins/test_lookups_and_versions.py::test_rows_meet_the_versions_of_their_time[cut]",
        "joins/test_lookups_and_versions.py::test_rows_meet_what_is_looked_up[cut]",
        "operators/test_over_and_match_jobs.py::test_each_row_tells_of_those_before_it[many-settings1]",
        "operators/test_over_and_match_jobs.py::test_matches_are_told_with_their_measures[many-settings1]",
        "operators/test_own_operators.py::test_ranks_of_ranks_are_the_same_for_every_cut_and_in_batch[many-settings1]",
        "connectors/test_partitioned_tables.py::test_a_partition_is_told_to_be_whole_when_the_watermark_has_passed_it[rows]",
        "operators/test_rowwise_queries.py::test_rows_of_the_script_alone_run_as_one_batch",
        "operators/test_rowwise_queries.py::test_rows_that_are_made_of_one_row[cut]",
        "operators/test_rowwise_queries.py::test_sorted_limited_and_compared_rows[cut]",
        "rules/test_rules_on_spark.py::test_hits_are_rows_and_what_is_no_event_is_a_dead_letter",
        "test_sdk_jobs.py::test_functions_windows_and_sql_run_in_one_query",
        "connectors/test_secured_topics.py::test_a_job_reads_writes_and_sets_aside_by_the_keys_and_certificates_of_its_tables",
        "connectors/test_sink_conflicts_on_spark.py::test_rows_that_fall_together_end_a_job_that_asks_for_it",
        "connectors/test_sinks.py::test_rows_become_messages_with_key_and_tag",
        "functions/test_user_function_jobs.py::test_functions_of_all_kinds_run_together_and_rows_that_fail_are_dead_letters",
        "joins/test_batch_relations_on_spark.py::test_operators_of_ours_stand_above_what_spark_joins_or_groups[united]",
        "joins/test_batch_relations_on_spark.py"
        "::test_what_spark_joins_or_groups_in_a_batch_is_what_a_stream_gives[full]",
    )
)

_TOOLS: Final = ("tools/test_generate_docs.py", "tools/test_run_tests.py")

SMOKE: Final = (*_TOOLS, *_ROLES, *_COMMANDS, *_CLIENTS, *_PROGRAMMES, *_BYTES, *_JOBS)
"""Each names one file, one test or one case of a test."""
