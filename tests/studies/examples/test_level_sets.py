"""The example that `make demo` runs."""

from examples.level_sets import main


def test_it_ends_with_the_accuracy_of_the_paper_and_a_picture(tmp_path, capsys):
    main(tmp_path)
    shown = capsys.readouterr().out
    [test] = [line for line in shown.splitlines() if "test points:" in line]
    assert float(test.partition(": ")[2].partition(" %")[0]) >= 99.2
    assert "(paper: 99.79 %)" in test
    assert (tmp_path / "level-sets.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["level-sets.png"]  # no temporary file left
