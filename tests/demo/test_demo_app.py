"""The app over the demo, by keys alone: real trainer, real sockets, nothing patched."""

from __future__ import annotations

from dflash_tui.demo.session import DemoSession
from dflash_tui.tui.app import DflashApp
from tests.pilot import screen_text, until


async def test_from_start_to_the_results_row_by_keys_alone() -> None:
    session = DemoSession()
    app = DflashApp(connect=session.connect)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            state = await until(pilot, app, lambda s: s.training.newest is not None, "a saved checkpoint")
            assert state.training.progress is not None
            assert state.training.progress.throughput is not None
            await pilot.press("e")
            await until(
                pilot,
                app,
                lambda s: s.results.current is not None and s.results.comparison is not None,
                "the results of a checkpoint beside the baseline",
            )
            await pilot.pause(0.6)
            state = app.newest
            assert state.results.current is not None
            assert state.results.comparison is not None
            step = state.results.current.step
            assert step in {item.step for item in state.training.checkpoints}
            assert state.transfer.step == step
            assert state.transfer.sha256
            shown = screen_text(app)
            assert f"step {step}" in shown
            assert f"{state.results.current.pooled.streak['top1']:.3f}" in shown
            assert f"{state.results.comparison.delta['top1']:+.3f}" in shown
            assert "trained at 32" in shown
            for key, panel in (("2", "loss"), ("3", "sha256"), ("4", "fizzbuzz"), ("5", "DDTree b=64")):
                await pilot.press(key)
                await pilot.pause(0.3)
                assert panel in screen_text(app), (key, panel)
            await pilot.press("1", "b")
            await until(pilot, app, lambda s: len(s.results.pins) == 1, "the pin")
    finally:
        await session.close()
