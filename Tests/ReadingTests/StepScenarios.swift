import Base
import Glibc
import Testing

import Reading

/// Readers that take a little here and there, each step a little on.
@Suite struct StepScenarios {
  @Test(
    "A file that is read in steps is fetched once, what was on its way when a transfer ended included",
    arguments: [200, 400, 1000] as [Int64], [1.6e6, 8e6, 20e6])
  func steps(kilobytes: Int64, line: Double) throws {
    let size: Int64 = 64 << 20
    var resource = FakeResource(name: "a.mp4", size: size)
    resource.latency = 0.05
    let bench = try Bench(resource)
    bench.service.line = line
    bench.service.connectSeconds = 0.05
    let inode = try bench.opened("a.mp4")
    let handle = SimulatedHandle(bench, inode, size: size)
    var position: Int64 = 0
    for _ in 0..<200 where position < size - (2 << 20) {
      let range = ByteRange(at: position, count: 64 << 10)
      handle.begin(range)
      #expect(
        bench.run(until: 20, step: 0.002) {
          handle.poll()
          return handle.has(range)
        })
      position += kilobytes << 10
    }
    bench.system.fetch([inode])
    #expect(bench.run(until: 300, step: 0.005) { bench.isComplete("a.mp4") })
    #expect(Double(bench.service.sent + bench.service.lost) <= 1.01 * Double(size))
  }
}
