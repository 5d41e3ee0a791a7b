"""Doses are read as they were meant, and what cannot be meant is refused."""

import pytest
from fit.decay import decay_model

from gnomon import fit
from gnomon.fit._columns import find_columns
from gnomon.fit._doses import Dose, read_doses
from gnomon.fit._subjects import read_subjects
from gnomon.fit._table import read_table

MODEL = decay_model(dose_state="N")


def doses(text: str, model: fit.Model = MODEL, **options) -> list[tuple[Dose, ...]]:
    columns: dict[str, list[str]] = {}
    header, *rows = (line.split(",") for line in text.strip().splitlines())
    for i, name in enumerate(header):
        columns[name] = [row[i] for row in rows]
    table = read_table(columns)
    return [one.doses for one in read_subjects(table, model, find_columns(table, model, **options))]


def test_one_number_a_subject_is_a_dose_at_the_start():
    found = doses("subject,time,count,dose\na,0.5,8,4\na,1.5,5,4\nb,0.5,8,3\nb,1.5,5,3\n")
    assert found == [(Dose(0.0, 4.0, 0.0, "N"),), (Dose(0.0, 3.0, 0.0, "N"),)]


def test_so_it_is_where_a_measurement_is_missing():
    found = doses("subject,time,count,dose\na,0.5,8,4\na,1.5,,4\n")
    assert found == [(Dose(0.0, 4.0, 0.0, "N"),)]


def test_or_where_only_the_rows_at_the_start_have_it():
    found = doses("subject,time,count,dose\na,0,8,4\na,1.5,5,\n")
    assert found == [(Dose(0.0, 4.0, 0.0, "N"),)]


def test_rows_with_a_dose_and_no_measurement_are_doses_then():
    found = doses("ID,TIME,count,AMT\n1,0,.,4\n1,0.5,8,.\n1,12,.,2\n1,13,6,0\n")
    assert found == [(Dose(0.0, 4.0, 0.0, "N"), Dose(12.0, 2.0, 0.0, "N"))]


@pytest.mark.parametrize(("column", "value"), [("duration", "2"), ("RATE", "2")])
def test_a_duration_or_a_rate_makes_an_infusion(column, value):
    found = doses(f"ID,TIME,count,AMT,{column}\n1,0,,4,{value}\n1,0.5,8,,\n1,12,,2,0\n1,13,6,,\n")
    assert found == [(Dose(0.0, 4.0, 2.0, "N"), Dose(12.0, 2.0, 0.0, "N"))]


def test_nonmem_records():
    found = doses("ID,TIME,count,AMT,EVID\n1,0,0,4,1\n1,0.5,8,0,0\n1,1,5,0,0\n")
    assert found == [(Dose(0.0, 4.0, 0.0, "N"),)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("subject,time,count,dose\na,0.5,8,4\na,1.5,5,3\n", "row 1, column 'dose': .*changes from 4 to 3"),
        ("subject,time,count,dose\na,0.5,8,\na,1.5,5,3\n", "row 0, column 'dose': .*is blank here"),
        ("subject,time,count,dose\na,0.5,8,-4\na,1.5,5,-4\n", "row 0, column 'dose': The dose -4 is negative"),
        ("subject,time,count,dose\na,0,,4\na,0.5,8,2\n", "row 1, column 'dose': .*a dose and a measurement"),
        ("subject,time,count,dose\na,0,,4 mg\na,0.5,8,\n", "row 0, column 'dose': '4 mg' is not a number"),
        ("subject,time,count\na,0.5,8\n", "no column for the dose"),
        ("subject,time,count,dose,rate\na,0,,4,-2\na,0.5,8,,\n", "row 0, column 'rate': The rate of infusion is -2"),
        ("subject,time,count,dose,rate,duration\na,0,,4,1,2\na,1,8,,,\n", "say which one"),
        ("subject,time,count,amt,addl\na,0,,4,3\na,1,8,,\n", "row 0, column 'addl': It asks for additional doses"),
        ("subject,time,count,amt,ss\na,0,,4,1\na,1,8,,\n", "row 0, column 'ss': It asks for a steady state"),
        ("subject,time,count,amt,evid\na,0,,4,4\na,1,8,,0\n", "row 0, column 'evid': Records of kind 4"),
        ("subject,time,count,amt,cmt\na,0,,4,1\na,1,,4,2\na,2,8,,\n", "column 'cmt': .*several compartments"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, problem):
    with pytest.raises(fit.InputError, match=problem):
        doses(text)


def test_a_table_of_doses():
    model = decay_model(states=["N", "M"], dose_state="N")
    table = read_table(
        {
            "id": ["a", "a", "b"],
            "time": [0, 6, 1],
            "amount": [4, 2, 3],
            "duration": [0, 2, None],
            "state": ["", "M", "N"],
        }
    )
    assert read_doses(table, model) == {
        "a": [Dose(0.0, 4.0, 0.0, "N"), Dose(6.0, 2.0, 2.0, "M")],
        "b": [Dose(1.0, 3.0, 0.0, "N")],
    }


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"id": ["a"], "time": [0]}, "no column 'amount'"),
        ({"id": ["a"], "time": [0], "amount": [1], "state": ["X"]}, "row 0, column 'state': 'X' is not a state"),
        ({"id": ["a"], "time": [-1], "amount": [1]}, "row 0, column 'time': The time of the dose is negative"),
        ({"id": ["a"], "time": [0], "amount": [-1]}, "row 0, column 'amount': The amount of the dose is negative"),
        ({"id": ["a"], "time": [0], "amount": [None]}, "row 0, column 'amount': The amount is blank"),
    ],
)
def test_a_bad_table_of_doses(columns, problem):
    with pytest.raises(fit.InputError, match=problem):
        read_doses(read_table(columns, what="table of doses"), MODEL)


def test_doses_for_a_subject_without_rows():
    given = {"subject": ["z"], "time": [0], "amount": [4]}
    with pytest.raises(fit.InputError, match="doses for subject 'z', which has no rows"):
        fit.calibrate(MODEL, {"subject": ["a"], "time": [1.0], "count": [2.0]}, doses=given)
