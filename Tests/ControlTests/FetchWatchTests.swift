import Base
import TestSupport
import Testing

@testable import Control

@Suite struct FetchWatchTests {
  @Test func aLookAsksForNoMoreThanItsShareAndEveryFileGetsItsTurn() {
    let count = 2500
    let server = FakeServer()
    server.state.withLock { state in
      for index in 0..<count {
        let path = "f\(index)"
        state.steps[path] = [
          FetchProgress(path: path, state: .partial, stored: 1, size: 10, rate: 1),
          FetchProgress(path: path, state: index % 5 == 0 ? .failed : .complete, stored: 10, size: 10, rate: 1),
        ]
      }
    }
    var watch = FetchWatch((0..<count).map { FetchTarget(path: "f\($0)") })
    var over: [String] = []
    var report = FetchReport()
    var looks = 0
    repeat {
      report = watch.look(server)
      over += report.changes.filter(\.isOver).map(\.path)
      #expect(report.changes.filter { !$0.isOver }.count <= ControlLimits.shown)
      looks += 1
    } while !report.isOver && looks < 100
    #expect(report.complete == 2000)
    #expect(report.failed == 500)
    #expect(report.stored == 25_000)
    #expect(report.size == 25_000)
    #expect(report.unknownSizes == 0)
    #expect(report.rate == 0)
    #expect(Set(over).count == count)
    #expect(over.count == count)
    #expect(server.state.withLock { $0.looks.max() } == ControlLimits.polled)
  }

  @Test func filesThatAreHeldUpAreCountedHoweverManyAreShown() {
    let server = FakeServer()
    let paths = (0..<200).map { "f\($0)" }
    server.state.withLock { state in
      for path in paths {
        state.steps[path] = [
          FetchProgress(path: path, state: .partial, stored: 1, size: 10, waitsFor: .turn),
          FetchProgress(path: path, state: .partial, stored: 1, size: 10, waitsFor: .space),
          FetchProgress(path: path, state: .partial, stored: 1, size: 10, error: "no answer", waitsFor: .line),
          FetchProgress(path: path, state: path == "f0" ? .complete : .failed, stored: 1, size: 10, error: "gone"),
        ]
      }
    }
    var watch = FetchWatch(paths.enumerated().map { FetchTarget(path: $0.element) })
    #expect(watch.look(server).heldUp == 0, "a turn comes by itself")
    let full = watch.look(server)
    #expect(full.heldUp == 200 && full.changes.count == ControlLimits.shown)
    #expect(full.changes.allSatisfy { $0.waitsFor == .space })
    #expect(watch.look(server).heldUp == 200)
    let last = watch.look(server)
    #expect(last.heldUp == 0 && last.isOver)
  }

  /// Twenty files of 2^60 bytes are more than a sum has room for: it stays at its bound, and comes back from there.
  @Test func impossibleSizesSumUpToTheBound() {
    let server = FakeServer()
    let paths = (0..<20).map { "f\($0)" }
    server.state.withLock { state in
      for path in paths {
        state.steps[path] = [
          FetchProgress(path: path, state: .partial, stored: 1 << 60, size: 1 << 60),
          FetchProgress(path: path, state: .complete, stored: 10, size: 10),
        ]
      }
    }
    var watch = FetchWatch(paths.enumerated().map { FetchTarget(path: $0.element) })
    let first = watch.look(server)
    #expect(first.size == .max && first.stored == .max)
    let last = watch.look(server)
    #expect(last.size == 200 && last.stored == 200 && last.isOver)
    var totals = StatusTotals()
    for path in paths {
      var file = FileStatus(path: path)
      file.size = 1 << 60
      file.stored = 1 << 60
      totals.add(file)
    }
    #expect(totals.size == .max && totals.stored == .max && totals.files == 20)
  }

  @Test func randomProgressSumsUp() {
    var random = SeededRandom.fromEnvironment()
    for _ in 0..<50 {
      let count = Int.random(in: 0...3000, using: &random)
      let server = FakeServer()
      var size: Int64 = 0
      server.state.withLock { state in
        for index in 0..<count {
          let path = "f\(index)"
          let whole = Int64.random(in: 0...1000, using: &random)
          size += whole
          var steps: [FetchProgress] = []
          for _ in 0..<Int.random(in: 0...3, using: &random) {
            steps.append(
              FetchProgress(
                path: path, state: .partial, stored: Int64.random(in: 0...whole, using: &random),
                size: Bool.random(using: &random) ? whole : nil, rate: Double.random(in: 0...9, using: &random)))
          }
          steps.append(FetchProgress(path: path, state: .complete, stored: whole, size: whole))
          state.steps[path] = steps
        }
      }
      var watch = FetchWatch((0..<count).map { FetchTarget(path: "f\($0)") })
      var report = watch.look(server)
      var looks = 1
      while !report.isOver, looks < 1000 {
        report = watch.look(server)
        looks += 1
      }
      #expect(report.complete == count, "seed \(random.seed)")
      #expect(report.stored == size, "seed \(random.seed)")
      #expect(report.size == size, "seed \(random.seed)")
      #expect(report.unknownSizes == 0, "seed \(random.seed)")
    }
  }
}
