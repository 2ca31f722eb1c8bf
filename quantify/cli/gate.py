"""`quantify gate`: a policy against the evidence on record, and an exit code that CI understands."""

from __future__ import annotations

from pathlib import Path

import click

from quantify.cli import output
from quantify.cli.options import FILE, output_options


@click.command("gate")
@click.argument("policy", type=FILE)
@output_options
@click.option("--html", "html_file", metavar="FILE", type=FILE, help="Write one self-contained page (- for stdout).")
@click.option("--sarif", "sarif_file", metavar="FILE", type=FILE, help="Write SARIF 2.1.0 (- for stdout).")
@click.option("--junit", "junit_file", metavar="FILE", type=FILE, help="Write JUnit XML (- for stdout).")
def command(
    policy: Path,
    json_file: Path | None,
    quiet: bool,
    html_file: Path | None,
    sarif_file: Path | None,
    junit_file: Path | None,
) -> int:
    """Decide by the rules of POLICY, from the evidence in QUANTIFY_STORE (else .quantify/evidence.db).

    Exit codes: 0 PASS, 1 FAIL, 2 bad input, 3 INSUFFICIENT_EVIDENCE or MANUAL_REVIEW, 4 INVALID.
    """
    files = (json_file, html_file, sarif_file, junit_file)
    if [str(file) for file in files].count("-") > 1:
        raise click.UsageError("only one of --json, --html, --sarif and --junit can go to stdout")
    output.check_writable(*files)
    from quantify.evidence.store import Store
    from quantify.gate import decide
    from quantify.gate import policy as policies
    from quantify.report import terminal
    from quantify.report import verdict as report

    read = policies.load(policy)
    with Store() as store:
        stored, damages = store.all()
        path = store.path
    verdict = decide.judge(read, stored, damages, path)
    if not quiet and "-" not in map(str, files):
        click.echo(terminal.view_to_text(report.of_verdict(verdict)), nl=False)
    if json_file is not None:
        output.write_json(json_file, report.to_dict(verdict))
    if html_file is not None:
        from quantify.report import verdict_page

        output.write_text(html_file, verdict_page.render(verdict))
    if sarif_file is not None:
        from quantify.report import sarif

        output.write_json(sarif_file, sarif.to_sarif(verdict))
    if junit_file is not None:
        from quantify.report import junit

        output.write_text(junit_file, junit.render(verdict))
    return verdict.exit_code
