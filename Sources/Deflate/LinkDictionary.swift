// SPDX-License-Identifier: MIT

/// What messages of a live link are likely to contain: both ends begin with it, so that the first message of a link is as small as the
/// hundredth. It never changes: another one gets another name. Source: docs/link-dictionary.md.
public enum LinkDictionary {
  /// Of what gateways send. The likeliest comes last, which is nearest.
  public static let fromGateway = Array(
    (#""kind":"telemetry","body":{"node":"","name":"","kind":"reaction","body":{"emoji":"👍","conversation":"","sender":"self","#
      + #""target":,"kind":"channel","body":{"slot":0,"name":"","channel":"","kind":"contact_removed","body":{"key":"","#
      + #""overwritten":true,"kind":"power","body":{"source":"battery","state":"low","battery_mv":,"kind":"gap","body":{"first":,"#
      + #""last":,"count":,"reason":"quota","kind":"packet","body":{"raw":"","snr":,"rssi":-"#
      + #"},{"type":"response","id":"","ok":true,"result":{"messages":[{"#
      + #"},"kind":"command","body":{"upstream":"","id":"","command":"send","result":{"#
      + #"},"kind":"outgoing","body":{"id":"","state":"pending","number":,"origin":"","kind":"channel","recipient":"","text":"","#
      + #""created_at":17,"kind":"outgoing","body":{"id":"","state":"delivered","sent","failed","reason":"","sender_time":17,"#
      + #""attempts":1,"floods":0,"round_trip_ms":,"heard":1,"airtime_ms":,"ended_at":17"#
      + #"{"type":"state","name":"gateway","body":{"version":"0.1.0","link":"serial:/dev/tty","radio":"up","name":"","#
      + #""sync":"synced","clock_trusted":true}}"#
      + #"{"type":"request","id":"2","method":"getUpdates","params":{"bucket":"commands","after":,"at":17,"since":17,"until":,"#
      + #""limit":100}},"kind":"contact","body":{"#
      + #"},{"seq":,"at":17,"trusted":true,"kind":"advert","body":{"key":"","name":"","type":"chat","type":"sensor","type":"room","#
      + #""type":"repeater","favourite":false,"flags":0,"hops":0,"path":"","lat":,"lon":,"last_advert":17,"last_modified":17,"#
      + #""on_radio":true,"first_seen":17,"last_heard":17"#
      + #"{"id":,"kind":"direct","sender":"","sender_name":"","sender_time":17,"text":"","snr":-,"direct":true,"waited":true,"#
      + #""waited_s":,"age_s":,"mentions":[""],"#
      + #"{"type":"hello","protocol":1,"gateway":"","epoch":"","version":"0.1.0","keep_alive_s":300,"brief":true}"#
      + #"{"type":"request","id":"1","method":"getUpdatesState","params":{"buckets":["commands","documents"]}}"#
      + #"{"type":"events","n":1,"after":,"events":[{"seq":,"at":17,"trusted":true,"kind":"message","body":{"id":,"kind":"channel","#
      + #""sender_name":"","channel":"1155f1870f917786","channel_name":"Public","sender_time":17,"text":"","snr":,"hops":,"#
      + #""direct":false}}]}"#).utf8)

  /// Of what hubs send.
  public static let fromHub = Array(
    (#"{"type":"request","id":"","method":"command","params":{"id":"","command":"send","to":"","text":""}}"#
      + #"{"type":"refused","n":,"status":422,"error":"","seq":{"type":"busy","n":,"error":"","retry_after_s":10"#
      + #"{"type":"response","id":"2","ok":true,"result":{"bucket":"commands","first":,"last":,"last_at":17,"more":false,"updates":["#
      + #"{"seq":,"at":17,"id":"","body":{"#
      + #"{"type":"has_new","bucket":"documents","seq":"#
      + #"{"type":"welcome","acknowledged":,"window":4,"max_bytes":1048576,"at":17"#
      + #"{"type":"response","id":"1","ok":true,"result":{"buckets":[{"bucket":"commands","seq":0,"at":0},"#
      + #"{"bucket":"documents","seq":,"at":0}]}}{"type":"taken","n":,"acknowledged":"#).utf8)
}
