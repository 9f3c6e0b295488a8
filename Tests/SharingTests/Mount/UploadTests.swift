import Base
import Glibc
import Reading
import TestSupport
import Testing

@testable import Sharing

/// What goes up of a completed copy, which its user may edit.
@Suite("Uploads") struct UploadTests {
  @Test("A copy that was written to since it was opened is not what the origin sent: nothing of it goes up")
  func editedCopy() throws {
    try withTemporaryFolder { folder in
      let size = 4096
      try folder.write(String(repeating: "a", count: size), to: "film.mp4")
      let path = "\(folder.path)/film.mp4"
      let served = ServedFile(copy: try FileDescriptor.open(path, O_RDONLY))
      let location = try StoreLocation(share: "s3://fleet/prefix", endpoint: "http://127.0.0.1:1")
      func prepared() -> PreparedUpload {
        let job = UploadJob(
          number: 1, id: FleetID(high: 1, low: 2), block: 0, range: ByteRange(0, Int64(size)), piece: 1024,
          place: FleetNode.Place(generation: 1, segment: 0), epoch: 0, served: served, isOwed: false,
          startsAt: .now)
        return PreparedUpload(job, for: location)
      }
      #expect(prepared().body != nil)
      // A tag editor writes in place.
      let editor = try FileDescriptor.open(path, O_WRONLY)
      sleep(seconds: 0.05)
      #expect(pwrite(editor.rawValue, "b", 1, 100) == 1)
      #expect(prepared().body == nil)
    }
  }
}
