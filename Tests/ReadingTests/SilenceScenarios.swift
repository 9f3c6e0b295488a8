import Base
import Fetching
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// Listings of folders whose files are in part on hosts that accept requests and never answer.
@Suite struct SilenceScenarios {
  static let timeout = 10.0
  private static let latency = 0.05

  private static var options: ReadingOptions {
    var options = ReadingOptions.testing
    options.timeout = timeout
    return options
  }

  /// `silent` files, each on a host of its own or all on one, each followed by a good one while there are some.
  private func bench(silent: Int, hosts: Int, good: Int) throws -> Bench {
    var entries: [ManifestEntry] = []
    var resources: [String: FakeResource] = [:]
    func add(_ name: String, host: String, isSilent: Bool) {
      var resource = FakeResource(name: name, size: 100_000 + Int64(entries.count))
      resource.latency = Self.latency
      resource.isSilent = isSilent
      let url = "http://\(host)/\(name)"
      entries.append(Bench.entry(name, UInt64(entries.count + 1), urls: [url]))
      resources[url] = resource
    }
    for number in 0..<max(silent, good) {
      if number < silent { add("s\(number).mp4", host: "silent\(number % hosts)", isSilent: true) }
      if number < good { add("g\(number).mp4", host: "good", isSilent: false) }
    }
    return try Bench(entries, resources, options: Self.options)
  }

  /// What one process that stats every name sees.
  private struct Listing {
    var seconds = 0.0
    var placeholders = 0
    var wrong: [String] = []
    /// The longest that a good file's stat took.
    var longestGood = 0.0
  }

  private func list(_ bench: Bench, process: Int32) throws -> Listing {
    var listing = Listing()
    let begun = bench.now
    for entry in bench.entries {
      let asked = bench.now
      let reply = bench.answer(bench.stat(try bench.inode(entry.name), process: process), step: 0.001)
      guard case .attributes(let shown)? = reply else {
        listing.wrong.append("\(entry.name): \(String(describing: reply))")
        continue
      }
      let resource = bench.service.resources[entry.urls[0]]
      if resource?.isSilent == true {
        listing.placeholders += shown.size == 1 && !shown.isFinal ? 1 : 0
      } else {
        if shown.size != resource?.size { listing.wrong.append("\(entry.name): \(shown.size)") }
        listing.longestGood = max(listing.longestGood, bench.now.seconds(since: asked))
      }
    }
    listing.seconds = bench.now.seconds(since: begun)
    return listing
  }

  @Test(
    "A listing ends within 1.2 times the timeout, the second within a second; good files have their sizes",
    arguments: [(40, 1, 40), (40, 40, 40), (300, 300, 100), (300, 3, 0)])
  func listings(silent: Int, hosts: Int, good: Int) throws {
    let bench = try bench(silent: silent, hosts: hosts, good: good)
    let first = try list(bench, process: 7)
    #expect(first.seconds <= 1.2 * Self.timeout)
    #expect(first.placeholders == silent && first.wrong.isEmpty, "\(first.wrong)")
    #expect(first.longestGood <= 2 * Self.latency + 0.01, "its own round trip")
    let second = try list(bench, process: 8)
    #expect(second.seconds <= 1)
    #expect(second.placeholders == silent && second.wrong.isEmpty, "\(second.wrong)")
  }

  @Test("Files that hang on a host that answers hold up nothing for long, and cost no other file its size")
  func someHang() throws {
    let bench = try bench(silent: 40, hosts: 1, good: 0)
    for number in 0..<40 where number % 2 == 1 {
      bench.service.resources["http://silent0/s\(number).mp4"]?.isSilent = false
    }
    let listing = try list(bench, process: 7)
    #expect(listing.wrong.isEmpty, "\(listing.wrong)")
    #expect(listing.seconds <= 2 * Self.timeout)
  }

  @Test("An open of a file on a silent host asks anew and waits for the timeout")
  func opens() throws {
    let bench = try bench(silent: 5, hosts: 1, good: 0)
    _ = try list(bench, process: 7)
    bench.run(30, step: 0.05)
    let inode = try bench.inode("s3.mp4")
    let asked = bench.service.requests.filter { $0.url.hasSuffix("/s3.mp4") }.count
    let begun = bench.now
    #expect(bench.answer(bench.open(inode)) == .error(.timedOut))
    let waited = bench.now.seconds(since: begun)
    #expect(waited >= Self.timeout && waited < Self.timeout + 1)
    #expect(bench.service.requests.filter { $0.url.hasSuffix("/s3.mp4") }.count > asked)
    // A stat beside it does not wait with it.
    let second = bench.open(inode)
    bench.run(1)
    let stat = bench.stat(inode, process: 8)
    bench.run(0.1)
    #expect(bench.port.reply(to: stat) != nil && bench.port.reply(to: second) == nil)
  }

  @Test("What was asked in the background ends the silence; then every stat gets its size")
  func comesBack() throws {
    let bench = try bench(silent: 40, hosts: 1, good: 0)
    _ = try list(bench, process: 7)
    bench.run(60, step: 0.05)
    for url in bench.service.resources.keys { bench.service.resources[url]?.isSilent = false }
    let ticket = bench.stat(try bench.inode("s0.mp4"), process: 8)
    bench.run(0.01)
    guard case .attributes(let shown)? = bench.port.reply(to: ticket) else {
      Issue.record("the stat waits for a host that was silent")
      return
    }
    #expect(!shown.isFinal)
    #expect(bench.run(until: 2 * Self.timeout) { bench.origin("http://silent0")?.answers == true })
    let listing = try list(bench, process: 9)
    #expect(listing.wrong.isEmpty, "\(listing.wrong)")
  }

  @Test("Another network, and five minutes, end it too: stats wait again")
  func forgets() throws {
    let bench = try bench(silent: 40, hosts: 1, good: 0)
    func waits(_ name: String, _ process: Int32) throws -> Bool {
      let ticket = bench.stat(try bench.inode(name), process: process)
      bench.run(0.2)
      let isWaiting = bench.port.reply(to: ticket) == nil
      _ = bench.answer(ticket)
      return isWaiting
    }
    #expect(try waits("s0.mp4", 7))
    #expect(try waits("s1.mp4", 7), "one file may hang on a host that answers")
    #expect(try !waits("s10.mp4", 8))
    bench.system.reconnect()
    bench.run(0.1)
    #expect(try waits("s20.mp4", 9))
    _ = try waits("s21.mp4", 9)
    #expect(try !waits("s30.mp4", 10))
    bench.run(2 * RoomLimits.silenceSeconds, step: 0.25)
    #expect(try waits("s35.mp4", 11))
  }

  @Test("Files of a second mirror have their sizes, though the first is silent")
  func mirrors() throws {
    let names = (0..<20).map { "m\($0).mp4" }
    var resources: [String: FakeResource] = [:]
    for name in names {
      var resource = FakeResource(name: name, size: 100_000)
      resource.latency = Self.latency
      resources["http://good/\(name)"] = resource
      resource.isSilent = true
      resources["http://silent/\(name)"] = resource
    }
    let entries = names.enumerated().map { number, name in
      Bench.entry(name, UInt64(number + 1), urls: ["http://silent/\(name)", "http://good/\(name)"])
    }
    let bench = try Bench(entries, resources, options: Self.options)
    for name in names.prefix(2) { _ = bench.answer(bench.stat(try bench.inode(name), process: 7)) }
    for name in names.dropFirst(2) {
      guard case .attributes(let shown)? = bench.answer(bench.stat(try bench.inode(name), process: 7)) else {
        Issue.record("no answer for \(name)")
        continue
      }
      #expect(shown.size == 100_000, "\(name)")
    }
  }

  @Test("Questions to silent hosts that nobody waits for are few, however many hosts there are")
  func questions() throws {
    let bench = try bench(silent: 300, hosts: 300, good: 0)
    _ = try list(bench, process: 7)
    bench.run(30, step: 0.05)
    #expect(bench.service.running.count <= RoomLimits.questions)
    _ = try list(bench, process: 8)
    bench.run(1)
    #expect(!bench.service.running.isEmpty && bench.service.running.count <= RoomLimits.questions)
  }
}
