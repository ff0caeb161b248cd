// SPDX-License-Identifier: MIT

/// Text that messages of a live link are likely to contain. Both ends begin with it, so that the first message of a
/// link is as small as the hundredth. It never changes: another dictionary gets another name. Source:
/// docs/link-dictionary.md.
public enum LinkDictionary {
  /// The name of the two dictionaries in the protocol.
  public static let name = "meshpost-dictionary-1"
  /// The `Content-Encoding` of a body that `Deflater.whole` has compressed with `fromGateway`.
  public static let contentEncoding = "meshpost-1"

  /// The end of a small batch: after the dictionary, it is the context of the next batch.
  public static func last(of batch: [UInt8]) -> [UInt8] { Array(batch.suffix(1024)) }

  /// For messages from gateways. The likeliest text comes last, where references to it are shortest.
  public static let fromGateway = Array(
    (#""kind":"power","body":{"source":"battery","state":"low","battery_mv":,"kind":"gap","body":{"first":,"last":,"#
      + #""count":,"reason":"quota","lane":"","kind":"contact_removed","body":{"key":"","overwritten":true,"#
      + #""kind":"reaction","body":{"emoji":"👍","conversation":"","sender":"self","target":"kind":"allowance","#
      + #""body":{"upstream":"","stopped":["packets"],"day_bytes":,"daily_bytes":,"month_bytes":,"monthly_bytes":},"#
      + #"{"type":"response","id":"","ok":true,"result":{"messages":[{"kind":"node_status","body":{"node":"","name":"","#
      + #""battery_mv":,"uptime_s":,"kind":"telemetry","body":{"node":"","name":"","readings":[{"channel":1,"#
      + #""type":"temperature","value":,"lane":"packets","after":,"events":[{"seq":,"kind":"packet","body":{"raw":"","#
      + #""snr":,"rssi":-},"kind":"command","body":{"upstream":"","id":"","command":"send","result":{},"kind":"outgoing","#
      + #""body":{"id":"","state":"pending","number":,"origin":"","kind":"channel","recipient":"","text":"","#
      + #""created_at":17,"kind":"outgoing","body":{"id":"","state":"delivered","sent","failed","reason":"","#
      + #""sender_time":17,"attempts":1,"floods":0,"round_trip_ms":,"heard":1,"airtime_ms":,"#
      + #""ended_at":17{"type":"request","id":"3","method":"getUpdates","params":{"bucket":"commands","after":,"at":17,"#
      + #""since":17,"until":,"limit":100}}},{"seq":,"at":17,"trusted":true,"kind":"contact","body":{"key":"","name":"","#
      + #""type":"chat","type":"sensor","type":"room",{"type":"events","n":4,"lane":"nodes","after":,"events":[{"seq":,"#
      + #""at":17,"trusted":true,"kind":"advert","body":{"key":"","name":"","type":"repeater","favourite":false,"flags":0,"#
      + #""hops":0,"path":"","lat":,"lon":,"last_advert":17,"last_modified":17,"on_radio":true,"first_seen":17,"#
      + #""last_heard":17,"folded":{"type":"state","name":"gateway","body":{"version":"0.1.0","#
      + #""link":"serial:/dev/serial/by-id/usb-tty","radio":"up","name":"","sync":"synced","#
      + #""clock_trusted":true}}"kind":"channel","body":{"slot":0,"name":"Public","#
      + #""channel":"1155f1870f917786"}}]}{"type":"events","n":1,"lane":"messages","after":,"events":[{"seq":,"at":17,"#
      + #""trusted":true,"kind":"radio","body":{"key":"","name":"","protocol_version":13,"model":"Heltec V3","#
      + #""version":"v1.1","build":" 2026","channel_slots":40,"max_contacts":350,"frequency_khz":869618,"#
      + #""bandwidth_hz":62500,"spreading_factor":8,"coding_rate":8,"tx_power_dbm":22,"manual_add":false}}]}{"id":,"#
      + #""kind":"direct","sender":"","sender_name":"","sender_time":17,"text":"","snr":-,"direct":true,"waited":true,"#
      + #""waited_s":,"age_s":,"mentions":[""],{"type":"hello","protocol":2,"gateway":"","epoch":"","version":"0.1.0","#
      + #""keep_alive_s":300,"brief":true}{"type":"request","id":"2","method":"getUpdatesState","#
      + #""params":{"buckets":["commands","documents"]}}{"type":"events","n":3,"lane":"messages","after":,"#
      + #""events":[{"seq":,"at":17,"trusted":true,"kind":"message","body":{"id":,"kind":"channel","sender_name":"","#
      + #""channel":"1155f1870f917786","channel_name":"Public","sender_time":17,"text":"","snr":,"hops":,"#
      + #""direct":false}}]}"#).utf8)

  /// For messages from hubs.
  public static let fromHub = Array(
    (#"{"type":"request","id":"","method":"command","params":{"id":"","command":"send","to":"","#
      + #""text":""}}{"type":"refused","n":,"status":422,"error":"","seq":{"type":"busy","n":,"error":"","#
      + #""retry_after_s":10{"type":"response","id":"3","ok":true,"result":{"bucket":"commands","first":,"last":,"#
      + #""last_at":17,"more":false,"updates":[{"seq":,"at":17,"id":"","body":{{"type":"has_new","bucket":"documents","#
      + #""seq":{"type":"taken","n":,"acknowledged":{"type":"response","id":"2","ok":true,"#
      + #""result":{"buckets":[{"bucket":"commands","seq":0,"at":0},{"bucket":"documents","seq":,"#
      + #""at":0}]}}{"type":"welcome","protocol":2,"lanes":{"messages":,"nodes":,"packets":},"window":4,"#
      + #""max_bytes":1048576,"at":17"#).utf8)
}
