import Base
import Glibc
import Reading
import Testing

@testable import Mount

@Suite("How an inode is open, for the kernel")
struct OpenFilesTests {
  private func copy() throws -> ServedFile { ServedFile(copy: try FileDescriptor.open("/dev/null", O_RDONLY)) }

  @Test("The first open decides until the last release")
  func first() throws {
    let copy = try copy()
    var files = OpenFiles()
    #expect(files.count(2, copy: nil, backing: nil) == .open(.ordinary))
    // Complete by now; but an ordinary handle is open.
    #expect(files.count(2, copy: copy, backing: nil) == .open(.ordinary))
    #expect(files.count(2, copy: copy, backing: 5) == .open(.ordinary))
    #expect(files.release(2) == nil)
    #expect(files.release(2) == nil)
    #expect(files.count(2, copy: copy, backing: nil) == .open(.ordinary))
    #expect(files.release(2) == nil)
    #expect(files.release(2) == nil)
    #expect(files.open.isEmpty)
    #expect(files.count(2, copy: copy, backing: nil) == .needsBacking)
    #expect(files.open.isEmpty)
    #expect(files.count(2, copy: copy, backing: 7) == .open(.passthrough(backing: 7)))
    // A second open at the same time had got an id too: that is not used.
    #expect(files.count(2, copy: copy, backing: 8) == .open(.passthrough(backing: 7)))
    #expect(files.count(2, copy: copy, backing: nil) == .open(.passthrough(backing: 7)))
    #expect(files.count(3, copy: copy, backing: nil) == .needsBacking)
    #expect(files.release(2) == nil)
    #expect(files.release(2) == nil)
    #expect(files.release(2) == 7)
    #expect(files.open.isEmpty)
    #expect(files.release(2) == nil)
  }

  @Test("No backing id to be had: ordinary")
  func refused() throws {
    let copy = try copy()
    var files = OpenFiles()
    #expect(files.count(2, copy: copy, backing: 0) == .open(.ordinary))
    #expect(files.count(2, copy: copy, backing: nil) == .open(.ordinary))
    #expect(files.release(2) == nil)
    #expect(files.release(2) == nil)
  }

  @Test("Another file than the open one, or none: a conflict that counts nothing")
  func conflict() throws {
    let (one, other) = (try copy(), try copy())
    var files = OpenFiles()
    #expect(files.count(2, copy: one, backing: 3) == .open(.passthrough(backing: 3)))
    #expect(files.count(2, copy: other, backing: nil) == .conflict)
    #expect(files.count(2, copy: nil, backing: nil) == .conflict)
    #expect(files.release(2) == 3)
  }

  @Test("A server that takes over a live mount goes on with what was open")
  func restart() throws {
    let (one, other) = (try copy(), try copy())
    var files = OpenFiles(
      leftOpen: [(2, 0), (3, 9), (3, 9)].map { OpenHandle(unique: $0.0, inode: $0.0, backing: $0.1) })
    #expect(files.count(2, copy: one, backing: nil) == .open(.ordinary))
    #expect(files.count(3, copy: one, backing: nil) == .open(.passthrough(backing: 9)))
    #expect(files.count(3, copy: other, backing: nil) == .conflict)
    #expect([files.release(3), files.release(3), files.release(3)] == [nil, nil, 9])
  }

  @Test("INIT: what the kernel offers, what the answer asks for")
  func initMessages() {
    var request = [UInt8](repeating: 0, count: 104)
    request[0] = 104
    request[4] = 26
    func offers() -> Bool { request.withUnsafeBytes { offersPassthrough($0) } }
    #expect(!offers())
    request[40 + 16] = 1 << 5
    #expect(!offers(), "further flags count only when the kernel says that there are some")
    request[40 + 12 + 3] = 1 << 6
    #expect(offers())
    request[40 + 16] = 0
    #expect(!offers())
    request[40 + 16] = 0xFF
    request[4] = 25
    #expect(!offers())
    #expect(!Array(request[..<56]).withUnsafeBytes { offersPassthrough($0) })

    var reply = [UInt8](repeating: 0, count: 64)
    reply[12] = 0x81
    reply[33] = 0x40
    #expect(reply.withUnsafeMutableBytes { acceptPassthrough(in: $0, depth: 2) })
    #expect(reply[12..<16] == [0x81, 0, 0, 1 << 6])
    #expect(reply[32..<40] == [1 << 5, 0x40, 0, 0, 2, 0, 0, 0])
    #expect(reply.filter { $0 != 0 }.count == 5)
    var old = [UInt8](repeating: 0, count: 24)
    #expect(!old.withUnsafeMutableBytes { acceptPassthrough(in: $0, depth: 1) })
    #expect(old.allSatisfy { $0 == 0 })
  }
}
