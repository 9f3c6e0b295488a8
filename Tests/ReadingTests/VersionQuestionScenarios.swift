import Base
import Glibc
import Manifest
import Storing
import TestSupport
import Testing

import Reading

/// A user asks whether origins still have the versions of complete files.
@Suite struct VersionQuestionScenarios {
  private static let connections = 3

  /// Complete files `0.mp4`, ... of an origin that is silent from now on, and one of an origin that answers.
  private func bench(_ count: Int, timeout: Double) throws -> Bench {
    let names = (0..<count).map { "\($0).mp4" }
    var entries = names.enumerated().map { Bench.entry($1, UInt64($0) + 1, urls: ["http://silent/\($1)"]) }
    entries.append(Bench.entry("living.mp4", 100, urls: ["http://living/living.mp4"]))
    var resources: [String: FakeResource] = [:]
    for entry in entries { resources[entry.urls[0]] = FakeResource(name: entry.name, size: 4096) }
    var options = ReadingOptions.testing
    (options.timeout, options.connections) = (timeout, Self.connections)
    let bench = try Bench(entries, resources, options: options)
    bench.system.fetch(try entries.map { try bench.inode($0.name) })
    try #require(bench.run(until: 60) { entries.allSatisfy { bench.isComplete($0.name) } })
    bench.run(1)
    for name in names { bench.service.resources["http://silent/\(name)"]?.isSilent = true }
    return bench
  }

  private struct Told {
    var answers: [ResourceKey: VersionAnswer] = [:]
    var silent: Set<String>
    /// How many requests the silent origin had at once, at most.
    var most = 0
  }

  /// Asks on a thread of its own, as a client's does, while the simulated time goes on. `each` follows each turn.
  private func ask(
    _ bench: Bench, silent: Set<String> = [], isLeft: @escaping @Sendable () -> Bool = { false },
    each: () -> Void = {}
  ) throws -> Told {
    let nodes = try bench.entries.map { try bench.node($0.name) }
    let system = try #require(bench.system)
    let told = Lock(Told(silent: silent))
    let isDone = Lock(false)
    let thread = OwnedThread(name: "asking") {
      var hosts = silent
      let answers = (try? system.askVersions(of: nodes, silent: &hosts, isLeft: isLeft)) ?? [:]
      told.withLock { [hosts] in ($0.answers, $0.silent) = (answers, hosts) }
      isDone.withLock { $0 = true }
    }
    var most = 0
    while !isDone.withLock({ $0 }) {
      bench.move(0.01)
      most = max(most, running(bench))
      each()
      sleep(seconds: 0.001)
    }
    thread.join()
    var result = told.withLock { $0 }
    result.most = most
    return result
  }

  private func running(_ bench: Bench) -> Int {
    bench.service.running.count { $0.request.url.hasPrefix("http://silent/") }
  }

  private func asked(_ bench: Bench) -> Int {
    bench.service.requests.count { $0.url.hasPrefix("http://silent/") }
  }

  @Test("A silent origin gets no more requests than its line may have, they end in time, and it is not asked again")
  func silent() throws {
    let bench = try bench(6, timeout: 1)
    let before = asked(bench)
    let first = try ask(bench)
    let living = try bench.node("living.mp4").key
    for (key, answer) in first.answers {
      switch answer {
      case .same: #expect(key == living)
      case .unproved(let why): #expect(key != living && why.contains("did not answer within 1 s"), "\(why)")
      }
    }
    #expect(first.answers.count == 7 && first.silent == ["http://silent"])
    #expect(first.most == Self.connections, "\(first.most) requests at once")
    #expect(bench.run(until: 5) { running(bench) == 0 }, "requests are left behind")
    let between = asked(bench)
    #expect(between - before == Self.connections)
    let second = try ask(bench, silent: first.silent)
    #expect(second.answers == first.answers)
    #expect(asked(bench) == between, "a host that answered nothing is asked again")
    // Its line is as it was.
    #expect(try #require(bench.origin("http://silent")).limit == Self.connections)
    bench.service.resources["http://silent/0.mp4"]?.isSilent = false
    try bench.clear(try bench.opened("0.mp4"))
    bench.run(1)
    bench.expectBytes(try bench.opened("0.mp4"), 0, 4096, of: "0.mp4", within: 5)
  }

  @Test("When the client leaves, what it asked ends")
  func left() throws {
    let bench = try bench(2, timeout: 1000)
    let isLeft = Lock(false)
    let told = try ask(bench, isLeft: { isLeft.withLock { $0 } }) {
      if running(bench) == 2 { isLeft.withLock { $0 = true } }
    }
    #expect(told.most == 2)
    #expect(bench.run(until: 5) { running(bench) == 0 }, "requests are left behind")
  }
}
