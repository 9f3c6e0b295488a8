import Base
import FoundationEssentials

/// What mediafs reads of yt-dlp's description of a film or a playlist.
struct YtdlpInfo: Decodable {
  var type: String?
  var id: String?
  var title: String?
  var extractor: String?
  var url: String?
  var ending: String?
  var duration: Double?
  var date: Int64?
  var isLive: Bool
  var headers: [HTTPHeader]?
  /// The value of a Cookie field.
  var cookie: String?
  /// Those of a playlist; nil if it has no list of them.
  var entries: [YtdlpInfo]?
  /// The best link to a whole file, with picture and sound if it has both; nil for none.
  var whole: YtdlpLink?

  private enum Key: String, CodingKey {
    case type = "_type", id, title, extractor = "extractor_key", otherExtractor = "extractor", url, ending = "ext"
    case flatExtractor = "ie_key"
    case duration, timestamp, day = "upload_date", isLive = "is_live", headers = "http_headers", cookies, entries,
      formats
    case requested = "requested_formats"
  }

  init(from decoder: any Decoder) throws {
    let values = try decoder.container(keyedBy: Key.self)
    type = values.lenient(.type)
    id = values.lenient(.id)
    title = values.lenient(.title)
    extractor = values.lenient(.extractor) ?? values.lenient(.otherExtractor) ?? values.lenient(.flatExtractor)
    url = values.lenient(.url)
    ending = values.lenient(.ending)
    duration = values.lenient(.duration)
    let timestamp: Double? = values.lenient(.timestamp)
    let day: String? = values.lenient(.day)
    date = timestamp.flatMap { Int64(exactly: $0.rounded()) } ?? day.flatMap { ListDate($0)?.seconds }
    isLive = values.lenient(.isLive) ?? false
    let fields: [String: String]? = values.lenient(.headers)
    headers = fields.map(YtdlpLink.headers)
    let cookies: String? = values.lenient(.cookies)
    cookie = cookies.flatMap(YtdlpLink.cookie)
    // A video that is private or was deleted is null.
    let list: [LenientElement<YtdlpInfo>]? = values.lenient(.entries)
    entries = list?.compactMap(\.value)
    // Two requested formats are picture and sound, which yt-dlp would put together; the URL is the first one's then.
    let requested: [YtdlpLink] = values.lenientList(.requested)
    let formats: [YtdlpLink] = values.lenientList(.formats)
    let chosen = requested.count > 1 ? nil : try? YtdlpLink(from: decoder)
    // yt-dlp sorts formats from the worst to the best.
    whole = chosen.flatMap { $0.isFile ? $0 : nil } ?? formats.last { $0.isFile && $0.hasBoth }
  }
}

/// One of the links to a film.
struct YtdlpLink: Decodable {
  var url: String
  /// yt-dlp's name of the format.
  var name: String?
  var ending: String?
  var size: Int64?
  /// nil when it names none: those of the film count then.
  var headers: [HTTPHeader]?
  /// The value of a Cookie field.
  var cookie: String?
  /// Whether one request brings the whole: no HLS, no DASH, no RTMP.
  var isFile: Bool
  /// Whether it has picture and sound.
  var hasBoth: Bool

  private enum Key: String, CodingKey {
    case url, name = "format_id", ending = "ext", size = "filesize", headers = "http_headers", cookies
    case transport = "protocol", picture = "vcodec", sound = "acodec"
  }

  init(from decoder: any Decoder) throws {
    let values = try decoder.container(keyedBy: Key.self)
    url = try values.decode(String.self, forKey: .url)
    name = values.lenient(.name)
    ending = values.lenient(.ending)
    let bytes: Double? = values.lenient(.size)
    size = bytes.flatMap { Int64(exactly: $0.rounded()) }.flatMap { $0 > 0 ? $0 : nil }
    let fields: [String: String]? = values.lenient(.headers)
    let cookies: String? = values.lenient(.cookies)
    headers = fields.map(Self.headers)
    cookie = cookies.flatMap(Self.cookie)
    let transport: String = values.lenient(.transport) ?? "https"
    isFile = transport == "http" || transport == "https"
    let (picture, sound): (String?, String?) = (values.lenient(.picture), values.lenient(.sound))
    hasBoth = picture != nil && picture != "none" && sound != "none"
  }

  /// The fields without those that belong to the transfer.
  static func headers(_ fields: [String: String]) -> [HTTPHeader] {
    fields.sorted { $0.key < $1.key }.filter {
      !["accept-encoding", "connection", "host"].contains($0.key.lowercased())
    }
    .map { HTTPHeader(name: $0.key, value: $0.value) }
  }

  /// The pairs of yt-dlp's cookies, which have their attributes between them: `a=1; Domain=.h; Path=/; b=2`.
  static func cookie(_ text: String) -> String? {
    let attributes: Set<String> = ["domain", "path", "expires", "secure", "httponly", "samesite", "max-age", "version"]
    let pairs = text.split(separator: ";").map { $0.trimmingPrefix { $0.isWhitespace } }.filter { pair in
      pair.contains("=") && !attributes.contains(pair.prefix { $0 != "=" }.lowercased())
    }
    return pairs.isEmpty ? nil : pairs.joined(separator: "; ")
  }
}
